"""The limits of Hopper's tensor cores, for kernels that target them.

The language has no such limits: the evaluator and the simulator multiply matrices of any size, so that small kernels
can be explored in all their interleavings. A Hopper executor always enforces them; `enable_hardware_limits` does so
while tracing, on any executor, without a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from palladio.array.on_card import Conditions
from palladio.base.errors import PalladioValueError
from palladio.types.attributes import SwizzleTransform, TilingTransform
from palladio.types.device import H100_SXM
from palladio.types.types import ArrayType, RefType

_limits: ContextVar[bool] = ContextVar("palladio_hardware_limits", default=False)

# PTX ISA, "Asynchronous Warpgroup Level Matrix Shape": m64nNk16 for 16-bit operands, and 32 bytes of k for the others.
ROWS, COLUMNS = H100_SXM.wgmma_rows, H100_SXM.wgmma_columns
MOST_COLUMNS, DEPTH_BYTES = H100_SXM.most_wgmma_columns, H100_SXM.wgmma_depth_bytes


UNLIMITED = Conditions(chosen=((_limits, False),))
"""The conditions in which `limits_enabled` is false."""


def limits_enabled() -> bool:
    """True if products are checked against the limits of the hardware while they are traced."""
    return _limits.get()


@contextmanager
def enable_hardware_limits(enable: bool = True) -> Iterator[None]:
    """Check the `wgmma` calls of kernels called inside the block against the limits of Hopper.

    An accumulator `[m, n]` has m a multiple of 64 and n a multiple of 8 up to 256; the operands' k is a multiple of 32
    bytes; operands whose memory is described by transforms have one swizzle, and tiles of 8 rows of it.
    """
    token = _limits.set(enable)
    try:
        yield
    finally:
        _limits.reset(token)


def check_matrix(array: ArrayType, what: str, most: int | None = None) -> None:
    """Refuse a matrix that the fragments of the tensor cores cannot tile.

    Raises:
        PalladioValueError: rows or columns that are not multiples of theirs, or too many columns.
    """
    rows, columns = array.shape
    if rows % ROWS or columns % COLUMNS or not rows or not 0 < columns <= (most or columns):
        limit = f" up to {most}" if most else ""
        raise PalladioValueError(
            f"Hopper's tensor cores hold {what} in pieces of {ROWS} rows and {COLUMNS} columns",
            expected=f"[m, n] with m a multiple of {ROWS}, n a multiple of {COLUMNS}{limit}",
            got=str(array),
        )


def check_operands(acc: ArrayType, a: Any, b: Any, a_array: ArrayType) -> None:
    """Refuse a product that the hardware's wgmma cannot compute.

    Args:
        acc: the part of the accumulator, [m, n].
        a, b: the types of the operands' roots.
        a_array: the left operand, [m, k].

    Raises:
        PalladioValueError: sizes or transforms that do not fit.
    """
    check_matrix(acc, "an accumulator", MOST_COLUMNS)
    itemsize = a_array.dtype.itemsize
    if a_array.shape[1] * itemsize % DEPTH_BYTES:
        raise PalladioValueError(
            f"Hopper's tensor cores take the operands {DEPTH_BYTES} bytes of k at a time",
            expected=f"a[m, k] with k a multiple of {DEPTH_BYTES // itemsize}",
            got=str(a_array),
        )
    described = {name: root for name, root in (("a", a), ("b", b)) if isinstance(root, RefType) and root.attributes}
    swizzles = {name: root.attribute(SwizzleTransform) for name, root in described.items()}
    if len(set(swizzles.values())) > 1:
        raise PalladioValueError("the operands of a product have one swizzle", got=_listed(swizzles))
    for name, root in described.items():
        swizzle, tiling = swizzles[name], root.attribute(TilingTransform)
        wanted = (8, swizzle.swizzle // itemsize) if swizzle else None
        if tiling is not None and wanted is not None and tiling.tiling != wanted:
            raise PalladioValueError(
                "the tiles of an operand are 8 rows of one swizzle", argument=name, expected=wanted, got=tiling.tiling
            )


def _listed(swizzles: dict[str, SwizzleTransform | None]) -> str:
    return ", ".join(f"{name}: {each.swizzle if each else 'none'}" for name, each in swizzles.items())
