"""Scale factors of the operands of a low-precision product: one for each tensor, each row, or each block along k.

The result is `out[i, j] = sum over k of x[i, k] * x_factor * y[j, k] * y_factor`. Factors of whole tensors and of rows
do not change along k: they are applied in the epilogue. Factors of blocks of 128 along k are applied to the sum of each
block (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.library.checks import dtype_of, fail
from palladio.library.hopper.config import SCALED, MatmulConfig

Array = Any
Ref = Any
Value = Any

COPIED = 4
"""The copy engine copies factors from a multiple of as many on."""

SPARE = 32
"""Elements after the factors of a tile's rows in their buffer: at least 3, and whole lines of 128 bytes."""

TENSOR, GROUP, ROW, BLOCK = "tensor", "group", "row", "block"


@dataclass(frozen=True)
class Scales:
    """The kinds of factors of a product: of x and of y, each "tensor", "row", "block" or None.

    In a grouped product, y may also have one for each group: "group".
    """

    x: str | None
    y: str | None

    @property
    def of_blocks(self) -> bool:
        """True if the factors change along k."""
        return self.x == BLOCK

    @property
    def of_rows(self) -> bool:
        """True if the factors of x are those of its rows, alone or in blocks."""
        return self.x in (ROW, BLOCK)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the operands that have factors."""
        return tuple(name for name, kind in (("x", self.x), ("y", self.y)) if kind is not None)


def scales_of(
    x_scale: Any,
    y_scale: Any,
    m: int,
    n: int,
    k: int,
    groups: int | None = None,
    names: tuple[str, str] = ("x_scale", "y_scale"),
) -> tuple[Scales, list[Array]]:
    """The kinds of the given factors, and their arrays in the kernel's form.

    Args:
        groups: the number of groups of a grouped product, whose right operand has a matrix for each.
        names: the names of the arguments.

    Those of blocks of x are one axis in the kernel: the copy engine takes rows of any length only from such an array.

    Raises:
        PalladioTypeError: factors that are not float32.
        PalladioValueError: shapes that do not match the product; block factors of one operand only.
    """
    blocks = pl.cdiv(k, SCALED)
    of_y: dict[tuple[int, ...], str] = {(n,): ROW, (pl.cdiv(n, SCALED), blocks): BLOCK}
    if groups is not None:
        of_y = {(groups,): GROUP, **{(groups, *shape): kind for shape, kind in of_y.items()}}
    shapes = {names[0]: {(): TENSOR, (m,): ROW, (blocks, m): BLOCK}, names[1]: {(): TENSOR, **of_y}}
    kinds: list[str | None] = []
    arrays = []
    for (argument, known), value in zip(shapes.items(), (x_scale, y_scale), strict=True):
        if value is None:
            kinds.append(None)
            continue
        array = jnp.asarray(value, jnp.float32) if isinstance(value, (int, float)) else value
        if dtype_of(array) != jnp.dtype("float32"):
            rule = "factors are float32"
            raise fail(pl.PalladioTypeError, rule, argument=argument, expected="float32", got=str(dtype_of(array)))
        kind = known.get(tuple(array.shape))
        if kind is None:
            rule, expected = "a factor for the array, for each row, or for each block", " or ".join(map(str, known))
            raise fail(pl.PalladioValueError, rule, argument=argument, expected=expected, got=tuple(array.shape))
        kinds.append(kind)
        arrays.append(array.reshape((-1,)) if kind == BLOCK and argument == names[0] else array)
    found = Scales(*kinds)
    if (found.x == BLOCK) != (found.y == BLOCK):
        rule = "blocks of both operands have factors, or of none"
        got = f"{found.x or 'no'} factors of {names[0][:-6]}, {found.y or 'no'} factors of {names[1][:-6]}"
        raise fail(pl.PalladioValueError, rule, argument=", ".join(names), got=got)
    return found, arrays


def require_scaled_config(config: MatmulConfig) -> None:
    """Check that a block with a shared factor is not divided between tiles."""
    if config.tile_k != SCALED or SCALED % config.tile_n:
        raise fail(
            pl.PalladioValueError,
            "the tiles of a product with factors of blocks lie inside of these",
            argument="config",
            expected=f"tile_k={SCALED} and a tile_n that divides {SCALED}",
            got=f"tile_k={config.tile_k}, tile_n={config.tile_n}",
        )


def factor_block(tile_m: int) -> Any:
    """The buffer of the factors of a tile's rows in one block along k."""
    return pl.ShapeDtypeStruct((tile_m + SPARE,), jnp.float32)


def block_rows(factors: Ref, step: Value, first: Value, count: int, rows: Value) -> Ref:
    """f32[count + SPARE]: the factors of rows of x from `first` in one block along k, after up to 3 others.

    Args:
        factors: f32[k / 128 * rows].
        rows: the number of rows of x.
    """
    start = step * rows + first
    return factors.at[pl.ds(pl.multiple_of(start - _skipped(start), COPIED), count + SPARE)]


def _skipped(start: Value) -> Value:
    """The factors that are copied before the first one, since the copy engine begins at a multiple of 16 bytes."""
    return lax.rem(start, jnp.int32(COPIED))


def block_factor(
    y_scale: Ref, x_factors: Ref, start: Value, row: Value, rows: int, column: Value, step: Value
) -> Value:
    """f32[rows, 1]: the factors of one block along k.

    Args:
        y_scale: f32[n / 128, k / 128].
        x_factors: the factors that `block_rows` selects, in shared memory.
        start: the position of the tile's first factor among all.
        row, rows: the selected rows.
        column: the first column of the tile; a tile past the last column is computed for a cluster, not stored.
    """
    block = jnp.minimum(column // SCALED, y_scale.shape[0] - 1)
    return (x_factors[pl.ds(_skipped(start) + row, rows)] * y_scale[block, step])[:, None]


def epilogue_factor(
    scales: Scales, refs: dict[str, Ref], row: Value, rows: int, column: Value, end: Value | None = None
) -> Any:
    """The factor of a piece of the result, a function of its first column in the tile and its number of columns.

    Args:
        refs: the factors by operand: f32[] for a tensor or group, f32[m] or f32[n] for rows.
        row, rows, column: the part of the result that a warpgroup stores.
        end: the number of rows of x; by default as many as there are factors.
    """
    fixed: Value = 1.0
    for name, kind in (("x", scales.x), ("y", scales.y)):
        if kind in (TENSOR, GROUP):
            fixed = refs[name][...] * fixed
    if scales.x == ROW:
        fixed = _part(refs["x"], row, rows, end)[:, None] * fixed

    def factor(first: int, count: int) -> Value:
        return _part(refs["y"], column + first, count)[None, :] * fixed if scales.y == ROW else fixed

    return factor


def _part(factors: Ref, first: Value, count: int, end: Value | None = None) -> Value:
    """f32[count]: factors from `first`; 0 past the last, or from `end`."""
    inside = first + jnp.arange(count) < (factors.shape[0] if end is None else end)
    return plgpu.load(factors.at[pl.ds(first, count)], mask=inside, other=0.0)
