"""An analytic model that chooses the default configuration of a matrix product.

A candidate is a tile, its split between the two compute warpgroups, and a cluster. Blocks are persistent, one for
each multiprocessor, so that the product takes as long as the block with most tiles, or as main memory. In clocks,

    max(tiles * steps * max(tensor, shared, feed), memory) + tiles * epilogue

tensor    the multiply-adds of a step, over those of a multiprocessor's tensor cores in a clock: 4,096 over the bytes
          of an element (2,048 of 16 bits: 989 TFLOP/s, 132 multiprocessors, 1.83 GHz; NVIDIA, "H100 Tensor Core GPU
          Architecture").
shared    the bytes that the products read from shared memory, at 128 in a clock: each warpgroup reads its rows of the
          left operand and its columns of the right one.
feed      the bytes that the block loads inside the arrays, with shared loads of a cluster counted by half, from an L2
          cache that delivers 6,154 in a clock to all multiprocessors (deepseek-ai/DeepGEMM, heuristics/sm90.hpp).
memory    the bytes of the operands and of the result, each moved once, at 1,830 in a clock (3.35 TB/s; the same page of
          NVIDIA). With few blocks or small rings, fewer bytes are in flight than this takes: those of the rings, in
          every 1,500 clocks of latency under load. Little's law; the latency is an estimate.
epilogue  the store of the result through shared memory, after that of a partial sum if steps are split. The ring
          fills meanwhile, but the tensor cores are idle.

Of candidates with equal times, the model chooses the one with more stages: loads run further ahead.

raster    the order of tiles. Concurrent tiles read their rows and columns from main memory once, and from the L2 cache
          afterwards; the width of bands minimises these rows and columns: they are nearly a square.

The model ignores clocks that fall under load, launches, and the first fill of the ring. On an H200 its order of 100
configurations had a rank correlation of 0.86 with their times. `palladio tune` measures its candidates (`tuned`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
from palladio.library.hopper.config import PROMOTED_STEPS, ROW_BYTES, SCALED, MatmulConfig, shared_bytes_of
from palladio.library.hopper.epilogue import SUM_BYTES
from palladio.library.hopper.limits import CARD, COMPUTE_GROUPS, FLOATS_OF_8_BITS
from palladio.library.hopper.scales import SPARE

PRODUCTS = 4096
"""Multiply-adds of a multiprocessor's tensor cores in a clock, times the bytes of an element."""

SHARED_BYTES = 128
"""Bytes that a multiprocessor reads from shared memory, or writes to it, in a clock."""

CACHE_BYTES = 6154
"""Bytes that the L2 cache delivers in a clock, to all multiprocessors."""

MEMORY_BYTES = 1830
"""Bytes that main memory delivers in a clock."""

LATENCY = 1500
"""Clocks from a load of main memory to its data, while many are in flight."""

ACCUMULATED = 192
"""The most registers of a thread for accumulators; others hold addresses and values of the epilogue."""

TILES = (
    *itertools.product((128, 256), (64, 128, 192, 256), "m"),
    *itertools.product((64,), (128, 256), "n"),
    (64, 64, "k"),
)
"""Rows, columns and split. Columns of a warpgroup are whole swizzled rows of a right operand `[k, n]`."""

FEWEST_STAGES, MOST_STAGES = 3, 8
BANDS = (1, 2, 4, 8, 16)
"""Widths of bands of the raster, in tiles of a cluster."""


@dataclass(frozen=True)
class Product:
    """The problem of a configuration: `groups` products of [m, k] and [k, n].

    Fields:
        operand, result: the dtypes of the operands and of the result.
        clusters: the axes along which clusters are supported.
        splits: the axes that the compute warpgroups can divide.
        scaled: True if blocks of 128 along k have factors.
        paired: True if two columns of the product, one of each half of a tile, make one of the result.
    """

    m: int
    n: int
    k: int
    operand: Any
    result: Any
    groups: int = 1
    clusters: Sequence[str] = ("m", "n")
    scaled: bool = False
    paired: bool = False
    splits: Sequence[str] = ("m", "n")

    @property
    def bytes(self) -> int:
        """The bytes of the operands and of the result."""
        sides = self.m * self.k + self.k * self.n
        return int(self.groups * (sides * self.operand.itemsize + self.m * self.n * self.result.itemsize))

    @property
    def promoted(self) -> bool:
        """True if sums leave the tensor cores after a few steps, as for 8-bit floats, which keep fewer bits there."""
        return self.scaled or self.operand in FLOATS_OF_8_BITS


def clocks(product: Product, config: MatmulConfig, multiprocessors: int) -> float:
    """The modelled clocks of a product."""
    size, (rows, columns) = product.operand.itemsize, config.own_shape
    sides = min(config.tile_m, product.m), min(config.tile_n, product.n)
    left, right = (side * config.tile_k * size for side in sides)
    tensor = config.tile_m * config.tile_n * config.tile_k * size / PRODUCTS
    depth = config.tile_k // (COMPUTE_GROUPS if config.split == "k" else 1)
    shared = COMPUTE_GROUPS * (rows + columns) * depth * size / SHARED_BYTES
    fed = CACHE_BYTES / multiprocessors
    loaded = left / (2 if config.cluster == "n" else 1) + right / (2 if config.cluster == "m" else 1)
    plane = config.plane(pl.cdiv(product.m, config.tile_m), pl.cdiv(product.n, config.tile_n))
    tiles, peers = product.groups * math.prod(plane), math.prod(config.cluster_shape)
    clusters = min(tiles, max(1, multiprocessors // peers))
    rounds = pl.cdiv(tiles, max(1, clusters))
    steps = pl.cdiv(product.k, config.tile_k) * max(tensor, shared, loaded / fed)
    delivered = min(MEMORY_BYTES, clusters * peers * config.stages * loaded / LATENCY)
    memory = product.bytes / delivered if delivered else 0.0
    return float(max(rounds * steps, memory) + rounds * _epilogue(product, config, fed))


def _epilogue(product: Product, config: MatmulConfig, fed: float) -> float:
    """The modelled clocks of the store of a tile."""
    area = config.tile_m * config.tile_n
    written = area * product.result.itemsize
    exchanged = area * SUM_BYTES if config.split == "k" else 0
    return float(2 * (written + exchanged) / SHARED_BYTES + written / fed)


def candidates(product: Product) -> Iterator[MatmulConfig]:
    """The configurations that fit into a block."""
    each = product.promoted + 1
    for tile_m, tile_n, split in TILES:
        if split not in product.splits or (split == "k" and product.promoted):
            continue
        # Each warpgroup multiplies whole swizzled rows.
        depth = ROW_BYTES // product.operand.itemsize * (COMPUTE_GROUPS if split == "k" else 1)
        tile = MatmulConfig(tile_m, tile_n, depth, split=split)
        if each * math.prod(tile.own_shape) > ACCUMULATED * CARD.warpgroup_threads:
            continue
        if product.scaled and SCALED % tile_n:
            continue
        if product.paired and (split != "m" or tile_n // 2 * product.operand.itemsize % ROW_BYTES):
            continue  # a warpgroup needs both columns, and a half needs whole swizzled rows
        stages = next(
            (
                n
                for n in range(MOST_STAGES, FEWEST_STAGES - 1, -1)
                if fits(product, dataclasses.replace(tile, stages=n))
            ),
            None,
        )
        if stages is None:
            continue
        extents = {"m": pl.cdiv(product.m, tile_m), "n": pl.cdiv(product.n, tile_n)}
        for cluster in (None, *product.clusters):
            if cluster is None or extents[cluster] > 1:
                promote = PROMOTED_STEPS if product.promoted else False
                yield dataclasses.replace(tile, stages=stages, cluster=cluster, promote=promote)


def fits(product: Product, config: MatmulConfig) -> bool:
    """True if the buffers fit, with a page for barriers and alignment, and the factors of each stage with another."""
    factors = config.stages * (config.tile_m + SPARE) * 4 + CARD.shared_alignment if product.scaled else 0
    needed = shared_bytes_of(config, product.operand, product.result) + factors + CARD.shared_alignment
    return needed <= CARD.shared_bytes


def ranked(product: Product) -> list[tuple[float, MatmulConfig]]:
    """All candidates with their modelled clocks, the best first, on the card of this machine or an H100."""
    count = plgpu.multiprocessors()
    timed = [(clocks(product, config, count), config) for config in candidates(product)]
    return sorted(timed, key=lambda each: (each[0], -each[1].stages))


def with_raster(product: Product, config: MatmulConfig) -> MatmulConfig:
    """A configuration with the raster for which concurrent tiles read the least."""
    count = plgpu.multiprocessors()
    bands = ((config.snake, config.snake_width), *itertools.product("mn", BANDS))  # ties: the default one
    snake, width = min(bands, key=lambda band: read_at_once(product, config, count, *band))
    return dataclasses.replace(config, snake=snake, snake_width=width)


def choose(product: Product) -> MatmulConfig:
    """The configuration with the fewest modelled clocks."""
    return with_raster(product, ranked(product)[0][1])


def read_at_once(product: Product, config: MatmulConfig, multiprocessors: int, snake: str, width: int) -> int:
    """The number of rows and columns of operands that concurrent tiles need, for bands of a width along an axis."""
    plane = config.plane(pl.cdiv(product.m, config.tile_m), pl.cdiv(product.n, config.tile_n))
    down, across = config.cluster_shape
    tiles, sides = dict(zip("mn", plane)), {"m": config.tile_m * down, "n": config.tile_n * across}
    other = "n" if snake == "m" else "m"
    count = max(1, multiprocessors // (down * across))
    band = min(width, max(1, tiles[snake]))
    length = min(pl.cdiv(count, band), max(1, tiles[other]))
    bands = pl.cdiv(count, band * length)
    return int(min(band * bands, max(1, tiles[snake])) * sides[snake] + length * sides[other])
