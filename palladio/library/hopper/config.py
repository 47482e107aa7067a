"""Configurations of the matrix products: the division of work among and within blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.library.checks import fail, require_count
from palladio.library.hopper.epilogue import BUFFERS, SUM_BYTES, partial_shape
from palladio.library.hopper.limits import (
    COMPUTE_GROUPS,
    require_config,
    require_multiple,
    require_shared,
)

CLUSTER_BLOCKS = 2
PEERS = ("peer",)
"""The axis of a cluster, if there are clusters."""

SPLITS = ("m", "n", "k")
"""The axes that the compute warpgroups of `matmul` can divide."""

SCALED = 128
"""Elements along k, and columns of the result, of a block that shares a scale factor."""

PROMOTED_STEPS = 1
"""Steps of 8-bit floats, of 128 elements each, whose sum stays on the tensor cores by default. Four were not faster on
an H200: one warpgroup adds while the tensor cores multiply for the other."""

ROW_BYTES = 128
"""The widest swizzled rows of shared memory: the default for the operands and for pieces of the result."""


@pl.checked_call
@dataclass(frozen=True)
class MatmulConfig:
    """The division of a matrix product. Tiles need not divide the sizes of the matrices.

    Args:
        tile_m, tile_n: the part of the result that a block computes. On the device each compute warpgroup needs a
            multiple of 64 rows and one of 8 columns, at most 256.
        tile_k: the extent of one step along the contracted axis; on the device a multiple of 64 bytes, of 256 with
            `split="k"`.
        stages: the number of steps whose operands are buffered in shared memory, at least 2: products of one step are
            in flight while those of the next are issued.
        split: the axis that the two compute warpgroups divide: the tile's rows ("m") or columns ("n"), or for `matmul`
            each step along the contracted axis ("k"), whose two sums are added in shared memory before the store.
        epilogue_n: the columns of the pieces in which results are stored; by default at most 128 bytes of them.
        snake: the axis of the result, "m" or "n", that is divided into bands, and
        snake_width: the width of a band in tiles. Within a band, consecutive tiles are along this axis first.
        blocks: the number of blocks that share the tiles; by default one for each multiprocessor of the card.
        cluster: "m" or "n" for clusters of two blocks with neighbouring tiles along this axis, which multicast the
            operand that both need. `gmm` has "n" only: neighbours along m may be of different groups.
        promote: the number of steps after which their sum leaves the tensor cores, to be added in float32; True for
            each step, False for none. For 8-bit floats, the tensor cores keep about 14 bits of a sum, so that long sums
            lose precision. By default such products have `PROMOTED_STEPS`; False is the fastest, since the others
            need a second accumulator, and narrower tiles.
    """

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    stages: int = 4
    split: str = "m"
    epilogue_n: int | None = None
    snake: str = "m"
    snake_width: int = 8
    blocks: int | None = None
    cluster: str | None = None
    promote: bool | int = False

    @property
    def own_shape(self) -> tuple[int, int]:
        """Rows and columns of the part of a tile that one compute warpgroup computes."""
        rows, columns = (COMPUTE_GROUPS if self.split == axis else 1 for axis in "mn")
        return self.tile_m // rows, self.tile_n // columns

    def own_corner(self, group: Any) -> tuple[Any, Any]:
        """The first row and column of a compute warpgroup's part of the tile."""
        rows, columns = self.own_shape
        return (group * rows if self.split == "m" else 0), (group * columns if self.split == "n" else 0)

    def own_operands(self, group: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        """The parts of `lhs[tile_m, tile_k]` and `rhs[tile_k, tile_n]` that a compute warpgroup multiplies."""
        (row, column), (rows, columns) = self.own_corner(group), self.own_shape
        if self.split == "k":
            half = self.tile_k // COMPUTE_GROUPS
            depth = pl.ds(group * half, half)
            return lhs.at[:, depth], rhs.at[depth]
        if self.split == "m":
            return lhs.at[pl.ds(row, rows)], rhs
        return lhs, rhs.at[:, pl.ds(column, columns)]

    def piece(self, dtype: Any) -> int:
        """Columns of a piece of the result."""
        if self.epilogue_n is not None:
            return self.epilogue_n
        columns, most = self.own_shape[1], ROW_BYTES // int(dtype.itemsize)
        return columns if columns <= most else math.gcd(columns, most)

    def staging(self, dtype: Any) -> Any:
        """The buffers through which results are stored: two for each compute warpgroup that stores."""
        return plgpu.SMEM((self.storing, BUFFERS, self.own_shape[0], self.piece(dtype)), dtype)

    def sums_like(self, other: MatmulConfig) -> bool:
        """True if both add the products of a sum in the same order."""
        return (self.split == "k") == (other.split == "k") and int(self.promote) == int(other.promote)

    @property
    def storing(self) -> int:
        """The compute warpgroups that store a part of a tile."""
        return 1 if self.split == "k" else COMPUTE_GROUPS

    @property
    def cluster_shape(self) -> tuple[int, int]:
        """The blocks of a cluster along the rows and columns of the result."""
        return (CLUSTER_BLOCKS if self.cluster == "m" else 1), (CLUSTER_BLOCKS if self.cluster == "n" else 1)

    @property
    def mesh(self) -> dict[str, Any]:
        """The axes of a launch in clusters, as options of `palladio.gpu.kernel`."""
        return {"cluster": (CLUSTER_BLOCKS,), "cluster_names": PEERS} if self.cluster else {}

    @property
    def shared(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The axes of a cluster along which its blocks share loads of the left and the right operand.

        Neighbours along the columns need the same rows of the left operand, neighbours along the rows the same columns
        of the right operand.
        """
        return PEERS if self.cluster == "n" else (), PEERS if self.cluster == "m" else ()

    def plane(self, rows: int, columns: int) -> tuple[int, int]:
        """The size of a result of `rows` times `columns` tiles, in tiles of a whole cluster."""
        down, across = self.cluster_shape
        return pl.cdiv(rows, down), pl.cdiv(columns, across)

    def clusters(self, tiles: int) -> int:
        """The number of clusters, or of blocks without clusters, that share tiles of a whole cluster."""
        blocks = plgpu.multiprocessors() if self.blocks is None else self.blocks
        return min(max(1, blocks // math.prod(self.cluster_shape)), tiles)

    def raster(self, step: Any, rows: int, columns: int) -> tuple[Any, Any]:
        """The row and column, in tiles, of this block's tile at a step through a plane of `rows` times `columns`."""
        return self._of_peer(*plgpu.planar_snake(step, (rows, columns), "mn".index(self.snake), self.snake_width))

    def group_raster(self, step: Any, rows: Any, columns: int) -> tuple[Any, Any]:
        """As `raster`, through the plane of a group, whose number of `rows` is known only on the GPU.

        Along "m" a group has as many bands as have room for `snake_width` rows, all of about the same height: a band of
        a few rows would read all columns of the group's matrix once more. Past the plane, rows are past it, too.
        """
        rows = jnp.maximum(rows, 1)
        if self.snake == "m":
            width = pl.cdiv(rows, jnp.maximum(lax.div(rows, jnp.int32(self.snake_width)), 1))
            extent, tiles = rows, width * columns
        else:
            width = min(self.snake_width, columns)
            extent, tiles = columns, rows * width
        band = lax.div(step, tiles)
        inside = step - band * tiles
        own = jnp.clip(extent - band * width, 1, width)
        if self.snake == "m":
            row, column = band * width + lax.rem(inside, own), lax.div(inside, own)
            return self._of_peer(row, jnp.where(lax.rem(band, jnp.int32(2)) == 1, columns - 1 - column, column))
        past = jnp.where(band * width >= columns, rows, 0)
        return self._of_peer(past + lax.div(inside, own), band * width + lax.rem(inside, own))

    def _of_peer(self, row: Any, column: Any) -> tuple[Any, Any]:
        """The tile of this block of a cluster."""
        if self.cluster is None:
            return row, column
        down, across = self.cluster_shape
        peer = pl.axis_index(PEERS[0])
        return (row * down + peer, column) if self.cluster == "m" else (row, column * across + peer)


def shared_bytes_of(config: MatmulConfig, operand: Any, result: Any) -> int:
    """The shared memory of a block: the stages of the operands, and the buffers of the result and of a partial sum."""
    operands = config.stages * config.tile_k * (config.tile_m + config.tile_n)
    staging = config.storing * BUFFERS * config.own_shape[0] * config.piece(result)
    partial = math.prod(partial_shape(*config.own_shape)) * SUM_BYTES if config.split == "k" else 0
    return int(operands * operand.itemsize + staging * result.itemsize + partial)


def require_matmul_config(
    given: Any, operand: Any, result: Any, clusters: Sequence[str] = ("m", "n"), splits: Sequence[str] = ("m", "n")
) -> MatmulConfig:
    """Check that a configuration is valid and that its buffers fit into a block.

    Args:
        operand, result: the dtypes of the operands and of the result.
        clusters: the axes along which the kernel can run in clusters.
        splits: the axes that its compute warpgroups can divide.
    """
    config: MatmulConfig = require_config(given, MatmulConfig)
    for name, choices in (("split", splits), ("snake", ("m", "n")), ("cluster", (None, *clusters))):
        if getattr(config, name) not in choices:
            rule, expected = "no such axis", " or ".join(map(repr, choices))
            got = repr(getattr(config, name))
            raise fail(pl.PalladioValueError, rule, argument=f"config.{name}", expected=expected, got=got)
    if config.blocks is not None:
        require_count(config.blocks, "config.blocks")
    if config.promote not in (False, True):
        require_count(config.promote, "config.promote")
    if config.stages < 2:
        rule = "the products of a step are in flight during the next one"
        raise fail(
            pl.PalladioValueError, rule, argument="config.stages", expected="at least 2 stages", got=config.stages
        )
    name = f"tile_{config.split}"
    require_multiple(getattr(config, name), COMPUTE_GROUPS, name, "the two computing warpgroups share a tile equally")
    if config.epilogue_n is not None:
        require_count(config.epilogue_n, "config.epilogue_n")
    piece, columns = config.piece(result), config.own_shape[1]
    if columns % piece:
        rule = "the pieces of the result have the same number of columns"
        raise fail(
            pl.PalladioValueError,
            rule,
            argument="config.epilogue_n",
            expected=f"a divisor of the {columns} columns of a warpgroup",
            got=piece,
        )
    require_shared(shared_bytes_of(config, operand, result))
    return config
