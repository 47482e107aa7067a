"""The analytic model of matrix products: its parts follow from its page, and it chooses what fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio.gpu as plgpu
from palladio.library.hopper import MatmulConfig
from palladio.library.hopper.config import SPLITS, require_matmul_config
from palladio.library.hopper.model import (
    CACHE_BYTES,
    MEMORY_BYTES,
    PRODUCTS,
    Product,
    candidates,
    choose,
    clocks,
    read_at_once,
)

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
SHAPES = [(16, 4096, 7168), (64, 128, 64), (512, 4096, 7168), (4096, 4096, 4096), (8192, 8192, 8192), (0, 4, 0)]


@pytest.fixture(autouse=True)
def an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plgpu, "multiprocessors", lambda: 132)


def product(m: int, n: int, k: int, operand: Any = BF16, result: Any = BF16, **options: Any) -> Product:
    return Product(m, n, k, operand, result, **options)


@pytest.mark.parametrize("operand", [BF16, F32, E4M3], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_it_chooses_fits_into_a_block(shape: tuple[int, int, int], operand: Any) -> None:
    config = choose(product(*shape, operand, BF16))
    assert require_matmul_config(config, operand, BF16) == config
    registers = config.own_shape[0] * config.own_shape[1] // 128 * (2 if config.promote else 1)
    assert registers <= 192


def test_factors_of_blocks_keep_tiles_inside_of_these() -> None:
    assert all(128 % config.tile_n == 0 for config in candidates(product(512, 512, 512, E4M3, scaled=True)))


def test_a_tile_that_is_bound_by_the_tensor_cores_takes_its_products_and_its_epilogue() -> None:
    config = MatmulConfig(cluster="m")
    steps, epilogue = 4096 // 64, 128 * 256 * 2 * (2 / 128 + 132 / CACHE_BYTES)
    # 16 by 16 tiles of a cluster, shared by 66 clusters.
    assert clocks(product(4096, 4096, 4096), config, 132) == pytest.approx(4 * (steps * 1024 + epilogue))


def test_alone_a_tile_waits_for_the_cache() -> None:
    alone, shared = (MatmulConfig(cluster=axis) for axis in (None, "m"))
    large = product(8192, 8192, 8192)
    assert clocks(large, alone, 132) > clocks(large, shared, 132)
    assert choose(large).cluster is not None


def test_little_work_gets_narrow_tiles_and_few_rows_of_many_groups_low_ones() -> None:
    assert choose(product(16, 4096, 7168)).tile_n == 64
    assert choose(product(16, 4096, 6144, groups=256, clusters=("n",))).tile_m == 64
    large = choose(product(4096, 4096, 4096))
    assert (large.tile_m, large.tile_n) == (128, 256)


def test_an_axis_of_one_tile_has_no_clusters() -> None:
    assert choose(product(64, 4096, 4096)).cluster in (None, "n")
    assert all(config.cluster != "m" for config in candidates(product(64, 64, 64)))


def test_groups_multiply_the_tiles() -> None:
    config = MatmulConfig()
    one, many = product(128, 256, 512), product(128, 256, 512, groups=132)
    assert clocks(product(2048, 2048, 512, groups=33), config, 132) == 32 * clocks(one, config, 132)
    assert clocks(many, config, 132) > clocks(one, config, 132)  # main memory delivers the operands of each group


def test_few_rows_wait_for_main_memory() -> None:
    few, config = product(16, 7168, 4096, splits=SPLITS), MatmulConfig(64, 64, 128, 6, split="k")
    moved = (16 * 4096 + 4096 * 7168 + 16 * 7168) * 2
    epilogue = 64 * 64 * (2 * (2 + 4) / 128 + 2 * 132 / CACHE_BYTES)
    assert clocks(few, config, 132) == pytest.approx(moved / MEMORY_BYTES + epilogue)
    assert choose(few).split == "k"
    assert choose(dataclasses.replace(few, splits=("m", "n"))).split != "k"


def test_a_short_ring_has_too_few_bytes_in_flight() -> None:
    few = product(16, 1024, 65536)  # 8 tiles of 128 columns
    long, short = (MatmulConfig(64, 128, 64, stages, split="n") for stages in (8, 2))
    assert clocks(few, short, 132) > 1.5 * clocks(few, long, 132)


def test_of_equals_the_one_with_more_stages_is_taken() -> None:
    config = choose(product(4096, 4096, 4096))
    fewer = dataclasses.replace(config, stages=config.stages - 1)
    assert clocks(product(4096, 4096, 4096), config, 132) == clocks(product(4096, 4096, 4096), fewer, 132)


def test_tiles_that_run_at_once_lie_in_a_square() -> None:
    large, alone = product(8192, 8192, 8192), MatmulConfig(128, 256, cluster=None)
    assert read_at_once(large, alone, 132, "m", 16) == 16 * 128 + 9 * 256
    assert read_at_once(large, alone, 132, "m", 1) == 5 * 128 + 32 * 256  # five rows of tiles, the last begun
    assert read_at_once(product(128, 512, 64), alone, 132, "n", 8) == 128 + 512
    found = choose(large)
    fewest = read_at_once(large, found, 132, found.snake, found.snake_width)
    assert fewest <= min(read_at_once(large, found, 132, "m", width) for width in (1, 2, 4, 8, 16))


ASKED = {
    "matmul 8192": product(8192, 8192, 8192),
    "matmul 4096": product(4096, 4096, 4096),
    **{f"matmul {m} rows": product(m, 7168, 4096, splits=SPLITS) for m in (16, 64, 128, 256, 512)},
    "matmul fp8 8192": product(8192, 8192, 8192, E4M3),
    "gmm 256 groups, 262144 rows": product(1024, 4096, 6144, groups=256, clusters=("n",)),
    "gmm 256 groups, 524288 rows": product(2048, 4096, 6144, groups=256, clusters=("n",)),
    "gmm Mixtral, 8 groups of 4096 rows": product(4096, 14336, 4096, groups=8, clusters=("n",)),
    "tgmm 256 groups, 262144 rows": product(6144, 4096, 1024, groups=256),
}
"""The products that the kernels are measured with."""


def test_the_choices_are_the_known_ones(golden: Callable[..., None]) -> None:
    lines = []
    for name, each in ASKED.items():
        config = choose(each)
        share = each.groups * each.m * each.n * each.k * each.operand.itemsize / PRODUCTS / 132
        cells = (f"{config.tile_m}x{config.tile_n}x{config.tile_k} by {config.split}", f"{config.stages} stages")
        cells += (f"cluster {config.cluster or 'none'}", f"bands of {config.snake_width} along {config.snake}")
        lines.append(f"{name}: {', '.join(cells)}; {share / clocks(each, config, 132):.0%} of the tensor cores")
    golden("\n".join(lines))
