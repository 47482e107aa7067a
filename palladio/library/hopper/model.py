"""The configuration of a matrix product where none is given, by an analytic model. These are its reasons.

A candidate is a tile, its split between the two computing warpgroups, and a cluster. Blocks are persistent, one for
each multiprocessor, so that the product takes as long as the block with most tiles; a tile takes, in clocks,

    steps * max(tensor, shared, feed) + epilogue

tensor    the multiply-adds of a step, by those that a multiprocessor's tensor cores do in a clock: 4,096 over the bytes
          of an element (2,048 of 16 bits: 989 TFLOP/s, 132 multiprocessors, 1.83 GHz; NVIDIA, "H100 Tensor Core GPU
          Architecture").
shared    the bytes that the products read from shared memory, 128 in a clock: each warpgroup its rows of the left
          operand and its columns of the right one.
feed      the bytes that the block loads inside of the arrays, what a cluster shares counted by half, from a cache of
          the second level that gives all multiprocessors 6,154 in a clock (deepseek-ai/DeepGEMM, heuristics/sm90.hpp).
epilogue  the result, through shared memory and out. The ring fills meanwhile, but nothing is multiplied.

Of candidates that take equally long, the one with more stages is taken: loads are further ahead.

raster    the order of tiles. Those that run at once read their rows and columns from the main memory once, and from
          the second-level cache afterwards; bands are as wide as makes these rows and columns fewest: nearly a square.

The model knows nothing of clocks that fall under load, of latencies, or of the main memory, which all candidates read
alike. It has not been held against times on a card.
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
from palladio.library.hopper.config import ROW_BYTES, SCALED, MatmulConfig, shared_bytes_of
from palladio.library.hopper.limits import CARD, COMPUTE_GROUPS, FLOATS_OF_8_BITS

PRODUCTS = 4096
"""Multiply-adds of the tensor cores of a multiprocessor in a clock, times the bytes of an element."""

SHARED_BYTES = 128
"""Bytes that a multiprocessor reads from shared memory, or writes to it, in a clock."""

CACHE_BYTES = 6154
"""Bytes that the second-level cache gives in a clock, to all multiprocessors."""

ACCUMULATED = 128
"""Registers of a thread that accumulators may take; beside them are those of addresses and of the epilogue."""

TILES = (*itertools.product((128, 256), (64, 128, 192, 256), "m"), *itertools.product((64,), (128, 256), "n"))
"""Rows, columns and split. Columns of a warpgroup are whole swizzled rows of a right operand that lies as [k, n]."""

FEWEST_STAGES, MOST_STAGES = 3, 8
BANDS = (1, 2, 4, 8, 16)
"""Widths of bands of the raster, in tiles of a cluster."""


@dataclass(frozen=True)
class Product:
    """The problem that a configuration is chosen for: `groups` products of [m, k] and [k, n].

    Fields:
        operand, result: dtypes.
        clusters: the axes along which clusters may lie.
        scaled: whether blocks of 128 along k have factors.
        paired: whether two columns of the product, one of each half of a tile, make one of the result.
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

    @property
    def promoted(self) -> bool:
        """True if sums leave the tensor cores after each step: of floats of 8 bits, which keep fewer bits there."""
        return self.scaled or self.operand in FLOATS_OF_8_BITS


def clocks(product: Product, config: MatmulConfig, multiprocessors: int) -> float:
    """The clocks that a product takes by the model."""
    size, (rows, columns) = product.operand.itemsize, config.own_shape
    sides = min(config.tile_m, product.m), min(config.tile_n, product.n)
    left, right = (side * config.tile_k * size for side in sides)
    tensor = config.tile_m * config.tile_n * config.tile_k * size / PRODUCTS
    shared = COMPUTE_GROUPS * (rows + columns) * config.tile_k * size / SHARED_BYTES
    fed = CACHE_BYTES / multiprocessors
    loaded = left / (2 if config.cluster == "n" else 1) + right / (2 if config.cluster == "m" else 1)
    written = config.tile_m * config.tile_n * product.result.itemsize
    epilogue = 2 * written / SHARED_BYTES + written / fed
    tile = pl.cdiv(product.k, config.tile_k) * max(tensor, shared, loaded / fed) + epilogue
    plane = config.plane(pl.cdiv(product.m, config.tile_m), pl.cdiv(product.n, config.tile_n))
    clusters = max(1, multiprocessors // math.prod(config.cluster_shape))
    return float(pl.cdiv(product.groups * math.prod(plane), clusters) * tile)


def candidates(product: Product) -> Iterator[MatmulConfig]:
    """The configurations that fit into a block."""
    each = product.promoted + 1
    for tile_m, tile_n, split in TILES:
        tile = MatmulConfig(tile_m, tile_n, ROW_BYTES // product.operand.itemsize, split=split)
        if each * math.prod(tile.own_shape) > ACCUMULATED * CARD.warpgroup_threads:
            continue
        if product.scaled and SCALED % tile_n:
            continue
        if product.paired and (split != "m" or tile_n // 2 * product.operand.itemsize % ROW_BYTES):
            continue  # a warpgroup has both columns, and a half is made of whole swizzled rows
        stages = next(
            (
                n
                for n in range(MOST_STAGES, FEWEST_STAGES - 1, -1)
                if _fits(product, dataclasses.replace(tile, stages=n))
            ),
            None,
        )
        if stages is None:
            continue
        extents = {"m": pl.cdiv(product.m, tile_m), "n": pl.cdiv(product.n, tile_n)}
        for cluster in (None, *product.clusters):
            if cluster is None or extents[cluster] > 1:
                yield dataclasses.replace(tile, stages=stages, cluster=cluster, promote=product.promoted)


def _fits(product: Product, config: MatmulConfig) -> bool:
    """True if the buffers fit, with a page for barriers and alignment, and for the factors of each stage."""
    factors = config.stages * config.tile_m * 4 if product.scaled else 0
    needed = shared_bytes_of(config, product.operand, product.result) + factors + CARD.shared_alignment
    return needed <= CARD.shared_bytes


def choose(product: Product) -> MatmulConfig:
    """The configuration that takes the fewest clocks by the model on the card of this machine, or an H100."""
    count = plgpu.multiprocessors()
    best = min(candidates(product), key=lambda config: (clocks(product, config, count), -config.stages))
    bands = ((best.snake, best.snake_width), *itertools.product("mn", BANDS))  # of equal ones the usual one
    snake, width = min(bands, key=lambda band: read_at_once(product, best, count, *band))
    return dataclasses.replace(best, snake=snake, snake_width=width)


def read_at_once(product: Product, config: MatmulConfig, multiprocessors: int, snake: str, width: int) -> int:
    """The rows and columns of the operands that concurrent tiles need, in bands of a width along an axis."""
    plane = config.plane(pl.cdiv(product.m, config.tile_m), pl.cdiv(product.n, config.tile_n))
    down, across = config.cluster_shape
    tiles, sides = dict(zip("mn", plane)), {"m": config.tile_m * down, "n": config.tile_n * across}
    other = "n" if snake == "m" else "m"
    count = max(1, multiprocessors // (down * across))
    band = min(width, max(1, tiles[snake]))
    length = min(pl.cdiv(count, band), max(1, tiles[other]))
    bands = pl.cdiv(count, band * length)
    return int(min(band * bands, max(1, tiles[snake])) * sides[snake] + length * sides[other])
