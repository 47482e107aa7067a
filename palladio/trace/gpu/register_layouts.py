"""Arrays with a register layout: loads, stores, reductions and iotas that request one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from palladio.array import FUNCTIONS, convert
from palladio.array.axes import normalize_axis
from palladio.array.functions.reduce import in_chains
from palladio.base.arguments import entries
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ops.arrays import shape as shape_ops
from palladio.ops.threads import wgmma as ops
from palladio.trace.gpu.hardware import check_matrix, limits_enabled
from palladio.trace.reference import Reference, TransformedReference, require_reference
from palladio.types import dtypes
from palladio.types.attributes import SwizzleTransform, TilingTransform
from palladio.types.layouts import described_layout
from palladio.types.types import described_shape


def layout_cast(x: Any, new_layout: Any) -> Any:
    """The same array `dtype[shape]`, with a requested layout in the threads' registers.

    Args:
        new_layout: e.g. `plgpu.Layout.WGMMA`, or `plgpu.Layout.WGMMA.reduce(1)`.

    Raises:
        PalladioTypeError: not an array or a layout.
        PalladioValueError: an array of another number of axes than the layout is for.
    """
    layout = described_layout(new_layout, "new_layout")
    array = convert.array_type(x)
    if not layout.fits(array.ndim):
        raise PalladioValueError(
            f"the layout {layout} is for arrays of another number of axes",
            argument="new_layout",
            expected=layout.ndim,
            got=str(array),
        )
    if limits_enabled() and layout.name == "WGMMA" and layout.ndim == 2:
        check_matrix(array, "an array of layout WGMMA")
    return convert.mark_weak(bind(ops.layout_cast, x, layout=layout)[0], convert.is_weak(x))


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int, *, layout: Any = None) -> Any:
    """0, 1, 2, … along an axis, the same along the others: `dtype[shape]`.

    Args:
        dimension: the axis that is counted along.
        layout: as `layout_cast` takes it.

    Raises:
        PalladioIndexError: no such axis.
        PalladioTypeError: a dtype without numbers.
    """
    sizes = described_shape(shape)
    axis = normalize_axis(dimension, len(sizes))
    counted = bind(shape_ops.iota, shape=sizes, dtype=dtypes.canonical(dtype), axis=axis)[0]
    return counted if layout is None else layout_cast(counted, layout)


def _reduction(name: str, doc: str) -> Callable[..., Any]:
    function = FUNCTIONS[name]

    def reduction(x: Any, axis: Any = None, keepdims: bool = False, *, accumulator_ilp: int | None = None) -> Any:
        if accumulator_ilp is not None and (not isinstance(accumulator_ilp, int) or accumulator_ilp < 1):
            raise PalladioValueError(
                "there is at least one chain of operations",
                argument="accumulator_ilp",
                expected="an integer of at least 1, or None",
                got=repr(accumulator_ilp),
            )
        if isinstance(x, Reference):
            x._refuse()
        if accumulator_ilp is not None:
            return in_chains(name, x, axis, keepdims, accumulator_ilp)
        return function(x, axis=axis, keepdims=keepdims)

    reduction.__name__ = reduction.__qualname__ = name
    reduction.__doc__ = f"""{doc} of the elements of `x`: dtype[shape] without the axes reduced.

    Args:
        axis: an axis or several; all by default.
        keepdims: keep the reduced axes with size 1.
        accumulator_ilp: advice to a compiler, which the program keeps: into how many independent chains a thread splits
            its part.

    Raises:
        PalladioTypeError: a reference, or a dtype that has no such reduction.
        PalladioValueError: an axis that there is not, or that stands twice; less than one chain.
    """
    return reduction


sum_of = _reduction("sum", "The sum")
max_of = _reduction("max", "The greatest")
min_of = _reduction("min", "The least")
product_of = _reduction("prod", "The product")


def transpose_ref(ref: Any, permutation: Sequence[int]) -> TransformedReference:
    """The reference with its axes in another order; the older spelling of `ref.transpose(permutation)`.

    Raises:
        PalladioTypeError: not a reference or a sequence.
        PalladioValueError: not a permutation of the axes.
    """
    return require_reference(ref, "ref").transpose(*entries(permutation, "permutation", "the axes in their new order"))


def transform_ref(ref: Any, transform: Any) -> Reference:
    """The reference seen through a transform of its memory.

    A tiling cuts the last axes: `dtype[..., m, n]` becomes `dtype[..., m / tm, n / tn, tm, tn]`. A swizzle moves no
    element that a kernel could see; it must be that of the buffer, `plgpu.SMEM(shape, dtype, transforms=...)`.

    Args:
        transform: a `TilingTransform`, a `SwizzleTransform`, or a sequence of them, the first one applied first.

    Raises:
        PalladioTypeError: not a transform.
        PalladioValueError: a tile that does not divide the reference; a swizzle that the buffer does not have.
    """
    reference = require_reference(ref, "ref")
    for each in transform if isinstance(transform, (tuple, list)) else (transform,):
        if isinstance(each, TilingTransform):
            reference = _tiled(reference, each.tiling)
        elif isinstance(each, SwizzleTransform):
            _require_swizzle(reference, each)
        else:
            raise PalladioTypeError(
                "this is not a transform of memory",
                argument="transform",
                expected="a TilingTransform or a SwizzleTransform",
                got=repr(each),
            )
    return reference


def _require_swizzle(reference: Reference, swizzle: SwizzleTransform) -> None:
    """A view cannot permute the bytes of its buffer."""
    buffer = reference.root.palladio_type
    if buffer.attribute(SwizzleTransform) != swizzle:
        raise PalladioValueError(
            "the buffer has another swizzle",
            argument="transform",
            got=f"{swizzle} of {buffer}",
            hint="give the buffer its transforms where it is allocated: plgpu.SMEM(shape, dtype, transforms=...)",
        )


def _tiled(reference: Reference, tiling: Sequence[int]) -> Reference:
    rank, depth = reference.ndim, len(tiling)
    kept, cut = reference.shape[: rank - depth], reference.shape[max(0, rank - depth) :]
    if depth > rank or any(size % tile for size, tile in zip(cut, tiling, strict=True)):
        raise PalladioValueError(
            "the tile does not divide the reference",
            argument="transform",
            expected=f"a tile of {reference.array}",
            got=tuple(tiling),
        )
    pairs = [part for size, tile in zip(cut, tiling, strict=True) for part in (size // tile, tile)]
    first = len(kept)
    outer, inner = range(first, first + 2 * depth, 2), range(first + 1, first + 2 * depth, 2)
    return reference.reshape(*kept, *pairs).transpose(*range(first), *outer, *inner)
