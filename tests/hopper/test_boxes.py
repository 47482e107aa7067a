"""Boxes of the copy engine, the regions of the thread that starts them, and waits that name what they complete."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from tests.hopper.kernels import BF16, F32, error, kernel, lowered, normal, on_twin


def there_and_back(rows: int) -> Any:
    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full)
        plgpu.barrier_wait(full)
        plgpu.copy_smem_to_gmem(tile, out)
        plgpu.wait_smem_to_gmem(0)

    return kernel(body, (rows, 64), BF16, [plgpu.SMEM((rows, 64), BF16), plgpu.Barrier()])


def test_a_copy_of_more_than_256_rows_is_several_boxes() -> None:
    x = normal(304, 64)
    made = lowered(there_and_back(304), x)
    assert {each.box for each in made.maps} == {(256, 64), (48, 64)}
    assert made.text.count("pal::tma_load(") == made.text.count("pal::tma_store(") == 2
    for found in on_twin(there_and_back(304), x):
        np.testing.assert_array_equal(found, x)


def test_copies_side_by_side_are_started_in_one_region() -> None:
    def body(x: Any, y: Any, out: Any, one: Any, other: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, one, full)
        plgpu.copy_gmem_to_smem(y, other, full)
        plgpu.barrier_wait(full)
        out[...] = one[...] + other[...]

    tile = plgpu.SMEM((64, 64), F32)
    x = normal(64, 64, dtype=F32)
    text = lowered(kernel(body, (64, 64), F32, [tile, tile, plgpu.Barrier(num_arrivals=2)]), x, x).text
    assert text.count("pal::tma_load(") == 4  # of 128 bytes of each row
    assert text.count("pal::elect()") == 1


def two_sums(a: Any, b: Any, first: Any, second: Any, left: Any, right: Any, full: Any) -> None:
    plgpu.copy_gmem_to_smem(a, left, full)
    plgpu.copy_gmem_to_smem(b, right, full)
    plgpu.barrier_wait(full)

    def multiply(one: Any, two: Any) -> None:
        plgpu.wgmma(one, left, right)
        plgpu.wgmma(two, left, right)
        plgpu.wgmma_wait(1)
        first[...] = one[...]
        plgpu.wgmma_wait(0)
        second[...] = two[...]

    pl.run_scoped(multiply, *[plgpu.ACC((64, 64))] * 2)


def test_a_wait_names_the_accumulators_that_are_complete() -> None:
    tile, out = plgpu.SMEM((64, 64), BF16), pl.ShapeDtypeStruct((64, 64), F32)
    made = plgpu.kernel(two_sums, (out, out), scratch_types=[tile, tile, plgpu.Barrier(num_arrivals=2)])
    x, y = normal(64, 64), normal(64, 64, seed=1)
    lines = [line.strip() for line in lowered(made, x, y).text.splitlines()]
    waits = {line: lines[number + 1] for number, line in enumerate(lines) if line.startswith("pal::wgmma_wait<")}
    assert waits["pal::wgmma_wait<1>();"] == "pal::keep(one[0]);"
    after = lines[lines.index("pal::wgmma_wait<0>();") + 1 :][:2]
    assert {name for line in after for name in re.findall(r"pal::keep\((\w+)\[0\]\)", line)} == {"one", "two"}
    for found in on_twin(made, x, y):
        assert error(found, x.astype(np.float64) @ y.astype(np.float64)) < 1e-5
