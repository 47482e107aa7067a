"""Arrays that a caller gives for the results of a call: `call(x, out=buffer)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.array.foreign import library_of, to_numpy
from palladio.array.on_card import CardArray, placed
from palladio.base import trees
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.types.types import ArrayType


def checked_buffers(
    out: Any,
    structure: trees.Structure,
    types: Sequence[ArrayType],
    inputs: Sequence[Any],
    aliases: Sequence[tuple[int, int]],
    input_names: Sequence[str] = (),
) -> list[Any]:
    """The flat arrays of `out`, as NumPy arrays on the same memory; or as arrays of a GPU, where the inputs are.

    Args:
        structure, types: of the outputs.
        inputs: the call's arrays. A buffer may be the input that its output aliases, and overlaps no other.
        aliases: pairs of an input and an output.
        input_names: the names of the inputs in a function without aliases.

    Raises:
        PalladioTypeError: another structure, an object that cannot be written in place, another dtype.
        PalladioValueError: another shape, an array that is read-only or not row-major, or one that overlaps another.
    """
    leaves, found = trees.flatten(tuple(out) if isinstance(out, list) else out)  # a list of results is a tuple
    if found != structure:
        raise PalladioTypeError(
            "has another structure than out_shape",
            argument="out",
            expected=trees.shown(structure),
            got=trees.shown(found),
        )
    names = trees.leaf_names(out, "out")
    home = next((value for value in inputs if isinstance(value, CardArray)), None)
    if home is not None:
        return _on_card(leaves, names, types, home, inputs, aliases, input_names)
    buffers = [_buffer(leaf, name, type) for leaf, name, type in zip(leaves, names, types, strict=True)]
    for target, (buffer, name) in enumerate(zip(buffers, names, strict=True)):
        shared = [n for n, value in enumerate(inputs) if _share_memory(buffer, value)]
        _refuse_overlaps([n for n in shared if (n, target) not in aliases], name, input_names)
        for source in shared:
            _require_same(buffer, inputs[source], name, source)
        for other, earlier in zip(names[:target], buffers):
            if np.may_share_memory(buffer, earlier):  # both are contiguous, so the test is exact
                raise PalladioValueError("overlaps another output", argument=name, got=f"memory of {other}")
    return buffers


def _buffer(leaf: Any, name: str, type: ArrayType) -> np.ndarray[Any, Any]:
    """One array of `out`, which must have the shape and dtype of its output and be contiguous and writable."""
    if isinstance(leaf, np.ndarray):
        array = np.asarray(leaf)
    elif library_of(leaf) == "torch":
        array = np.asarray(to_numpy(leaf, name))
    else:
        raise PalladioTypeError(
            "results are written to NumPy arrays and PyTorch tensors", argument=name, got=leaf.__class__.__name__
        )
    if array.dtype != type.dtype:
        raise PalladioTypeError("not the dtype of the output", argument=name, expected=type.dtype, got=array.dtype)
    if array.shape != type.shape:
        raise PalladioValueError("not the shape of the output", argument=name, expected=type.shape, got=array.shape)
    if not array.flags.writeable:
        raise PalladioValueError("the array is read-only", argument=name)
    if not array.flags.c_contiguous:
        raise PalladioValueError(
            "the array is not in row-major order without gaps",
            argument=name,
            got=f"strides of {array.strides} bytes",
            hint="np.empty(shape, dtype) makes one that is",
        )
    return array


def _on_card(
    leaves: Sequence[Any],
    names: Sequence[str],
    types: Sequence[ArrayType],
    home: CardArray,
    inputs: Sequence[Any],
    aliases: Sequence[tuple[int, int]],
    input_names: Sequence[str],
) -> list[CardArray]:
    """The arrays of `out` on the GPU where the inputs are."""
    buffers: list[CardArray] = []
    for target, (leaf, name, type) in enumerate(zip(leaves, names, types, strict=True)):
        buffer = placed(leaf, name, home.device, exact=True)
        if buffer.library.name == "jax":
            raise PalladioTypeError("arrays of JAX cannot be written to", argument=name, got="a JAX array")
        if buffer.dtype != type.dtype:
            raise PalladioTypeError("not the dtype of the output", argument=name, expected=type.dtype, got=buffer.dtype)
        if buffer.shape != type.shape:
            raise PalladioValueError(
                "not the shape of the output", argument=name, expected=type.shape, got=buffer.shape
            )
        shared = [n for n, value in enumerate(inputs) if isinstance(value, CardArray) and buffer.overlaps(value)]
        same = [n for n in shared if (n, target) in aliases and buffer.address == inputs[n].address]
        _refuse_overlaps([n for n in shared if n not in same], name, input_names)
        for other, earlier in zip(names, buffers):
            if buffer.overlaps(earlier):
                raise PalladioValueError("overlaps another output", argument=name, got=f"memory of {other}")
        buffers.append(buffer)
    return buffers


def _share_memory(buffer: Any, value: Any) -> bool:
    return np.may_share_memory(buffer, value) and np.shares_memory(buffer, value)


def _refuse_overlaps(sources: Sequence[int], name: str, input_names: Sequence[str]) -> None:
    """Refuse an array that overlaps inputs which its output does not alias."""
    if sources:
        overlapped = [input_names[n] if input_names else f"input {n}" for n in sources]
        raise PalladioValueError(
            "overlaps an input" if len(sources) == 1 else "overlaps inputs",
            argument=name,
            got=f"memory of {' and '.join(overlapped)}",
            hint="give an array of its own" + ("" if input_names else ", or alias the two with input_output_aliases"),
        )


def _require_same(buffer: np.ndarray[Any, Any], value: np.ndarray[Any, Any], name: str, source: int) -> None:
    """Require an array that overlaps the input which its output aliases to be that input."""
    if buffer.ctypes.data != value.ctypes.data or buffer.strides != value.strides:
        raise PalladioValueError(
            "overlaps the input that it aliases, but is not the same array", argument=name, got=f"input {source}"
        )
