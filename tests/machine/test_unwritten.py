"""Values from memory that nothing has written matter where they reach an output, a branch or an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax

X = np.arange(1, 9, dtype=np.float32)
HALF = plgpu.SMEM((8,), np.float32)


def found(body: Callable[..., None], *scratch: Any, out: Any = ((8,), np.float32), x: Any = X) -> list[str]:
    """The codes of a check of a kernel."""
    call = plgpu.kernel(body, pl.ShapeDtypeStruct(*out), scratch_types=list(scratch))
    return [finding.code for finding in pl.check(call, x, schedules=4).findings]


def half_written(x: Any, shared: Any) -> None:
    """The first four of eight elements have a value."""
    shared[pl.ds(0, 4)] = x[pl.ds(0, 4)]


def test_a_value_that_no_output_depends_on_may_be_anything() -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        half_written(x, shared)
        everything = shared[...] * 2
        out[...] = jnp.where(x[...] < 5, everything, x[...])

    assert found(body, HALF) == []


def test_an_output_that_depends_on_one_is_wrong() -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        half_written(x, shared)
        out[...] = jnp.where(x[...] < 6, shared[...] * 2, x[...])

    assert found(body, HALF) == ["uninitialized-read"]


def test_a_sum_depends_on_all_its_elements() -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        half_written(x, shared)
        out[...] = x[...] + jnp.sum(shared[...])

    assert found(body, HALF) == ["uninitialized-read"]


def test_a_value_is_followed_through_memory() -> None:
    def copied(upto: int) -> Any:
        def body(x: Any, out: Any, shared: Any, more: Any) -> None:
            half_written(x, shared)
            more[...] = shared[...] + 1
            out[...] = x[...]
            out[pl.ds(0, upto)] = more[pl.ds(0, upto)]

        return body

    assert found(copied(4), HALF, HALF) == []
    assert found(copied(5), HALF, HALF) == ["uninitialized-read"]


def test_a_value_is_followed_through_control_flow() -> None:
    def summed(upto: int) -> Any:
        def body(x: Any, out: Any, shared: Any) -> None:
            half_written(x, shared)
            total = lax.fori_loop(0, upto, lambda i, total: total + shared[i], jnp.float32(0))
            out[...] = x[...] + total

        return body

    assert found(summed(4), HALF) == []
    assert found(summed(5), HALF) == ["uninitialized-read"]


def test_a_branch_that_depends_on_one_is_wrong() -> None:
    def branching(element: int) -> Any:
        def body(x: Any, out: Any, shared: Any) -> None:
            half_written(x, shared)
            out[...] = x[...]
            pl.when(shared[element] > 2)(lambda: out.__setitem__(..., x[...] + 1))

        return body

    assert found(branching(3), HALF) == []
    assert found(branching(4), HALF) == ["uninitialized-read"]


def test_an_address_that_depends_on_one_is_wrong() -> None:
    def indexed(element: int) -> Any:
        def body(x: Any, out: Any, table: Any) -> None:
            table[pl.ds(0, 4)] = jnp.zeros(4, np.int32)
            out[...] = x[...] + x[jnp.minimum(jnp.maximum(table[element], 0), 7)]

        return body

    table = plgpu.SMEM((8,), np.int32)
    assert found(indexed(3), table) == []
    assert found(indexed(4), table) == ["uninitialized-read"]


@pytest.mark.parametrize(("rows", "codes"), [(64, []), (65, ["uninitialized-read"])])
def test_rows_of_a_product_that_are_not_stored_may_be_anything(rows: int, codes: list[str]) -> None:
    def body(a: Any, out: Any, left: Any, right: Any, acc: Any) -> None:
        left[pl.ds(0, 64)] = a[pl.ds(0, 64)]
        right[...] = a[pl.ds(0, 64)]
        plgpu.commit_smem()
        plgpu.wgmma(acc, left, right)
        out[...] = acc[...][:rows]

    a = np.ones((128, 64), np.float16)
    scratch = [plgpu.SMEM((128, 64), np.float16), plgpu.SMEM((64, 64), np.float16), plgpu.ACC((128, 64), np.float32)]
    assert found(body, *scratch, out=((rows, 64), np.float32), x=a) == codes


@pytest.mark.parametrize(("start", "codes"), [(4, []), (3, ["uninitialized-read"])])
def test_the_part_of_a_copy_outside_its_target_is_not_read(start: int, codes: list[str]) -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        half_written(x, shared)
        plgpu.commit_smem()
        out[...] = x[...]
        plgpu.copy_smem_to_gmem(shared, out.at[pl.ds(start + pl.axis_index("x"), 8)])
        plgpu.wait_smem_to_gmem(0)

    call = plgpu.kernel(body, pl.ShapeDtypeStruct((8,), np.float32), scratch_types=[HALF], grid=(1,), grid_names=("x",))
    report = pl.check(call, X, schedules=4, ignore=("out-of-bounds",))
    assert [finding.code for finding in report.findings] == codes


def test_the_report_names_the_read_and_what_becomes_of_it() -> None:
    def body(x: Any, out: Any, shared: Any) -> None:
        half_written(x, shared)
        value = shared[...]
        out[...] = value

    call = plgpu.kernel(body, pl.ShapeDtypeStruct((8,), np.float32), scratch_types=[HALF])
    (finding,) = pl.check(call, X, schedules=1).findings
    assert finding.message == "shared (f32[8] in smem) is read where nothing has written to it"
    assert [each.did for each in finding.participants] == ["reads it, by load", "writes it to out"]
