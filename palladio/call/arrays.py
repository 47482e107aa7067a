"""Functions of arrays in Pallas' own namespace."""

from __future__ import annotations

from typing import Any

from palladio.array.convert import Array, ArrayLike
from palladio.array.functions import arithmetic, creation
from palladio.base import trees
from palladio.base.errors import PalladioTypeError, at_call
from palladio.trace.array_refs import empty_ref


def empty_like(x: Any) -> Any:
    """Arrays of zeros in the shapes and dtypes of a pytree's leaves; no element is left uninitialised.

    Args:
        x: a pytree of anything with a shape and a dtype: arrays, references, `ShapeDtypeStruct`.

    Raises:
        PalladioTypeError: a leaf without them.
    """
    with at_call():
        leaves, structure = trees.flatten(x)
        for leaf, name in zip(leaves, trees.leaf_names(x, "x"), strict=True):
            if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
                raise PalladioTypeError("this has no shape and dtype", argument=name, got=repr(leaf))
        return trees.unflatten(structure, [creation.empty(leaf.shape, leaf.dtype) for leaf in leaves])


def empty_ref_like(x: Any) -> Any:
    """A reference to new memory that nothing has written, as `empty_ref(x)` makes it.

    Args:
        x: a description of memory, such as `pltpu.VMEM((8, 128), jnp.float32)`, or a `ShapeDtypeStruct`.

    Raises:
        PalladioTypeError: no shape and dtype.
    """
    with at_call():
        return empty_ref(x)


def reciprocal(x: ArrayLike, *, approx: bool = False, full_range: bool = True) -> Array:
    """1 / x. `approx` and `full_range` are advice: it is exact anyway."""
    return arithmetic.true_divide(1.0, x)
