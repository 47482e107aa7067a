"""Checks of the operands and configurations of the Hopper kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library.card_calls import HALVES
from palladio.library.checks import dtype_of, fail, float_dtype, require_count
from palladio.library.staging import transposed_tensor

CARD = plgpu.H100_SXM
"""The card of the configurations; each of its multiprocessors holds one block of these kernels."""

COMPUTE_GROUPS = 2
MEMORY_GROUP = COMPUTE_GROUPS
"""The memory warpgroup of a block, which follows the compute warpgroups."""

COMPUTE_REGISTERS, MEMORY_REGISTERS = 232, 40
"""Registers of each thread: 2 * 232 + 40 are the 504 that three warpgroups have at launch."""

COPIED_BYTES = 16
"""The copy engine copies rows of a multiple of as many bytes."""

FLOATS = tuple(map(jnp.dtype, ("float16", "bfloat16", "float32")))
FLOATS_OF_8_BITS = tuple(map(jnp.dtype, ("float8_e4m3fn", "float8_e5m2")))
INTEGER = jnp.dtype("int8")
NARROW = (*FLOATS_OF_8_BITS, INTEGER)
"""Operands that the tensor cores accept only with k as their last axis."""


def require_operand(value: Any, argument: str, like: Any = None, dtypes: Sequence[Any] = FLOATS) -> None:
    """Check for an array of one of the dtypes, and of that of `like`; the two 8-bit floats may be mixed."""
    dtype = dtype_of(value)
    if dtype not in dtypes:
        names = list(map(str, dtypes))
        expected = f"{', '.join(names[:-1])} or {names[-1]}"
        rule = "the tensor cores do not multiply this dtype"
        raise fail(pl.PalladioTypeError, rule, argument=argument, expected=expected, got=str(dtype))
    both = like is not None and {dtype, dtype_of(like)} <= set(FLOATS_OF_8_BITS)
    if like is not None and not both and dtype != dtype_of(like):
        rule = "the operands of a product have one dtype"
        raise fail(pl.PalladioTypeError, rule, argument=argument, expected=str(dtype_of(like)), got=str(dtype))


def product_dtype(preferred: Any, operand: Any, scaled: bool) -> Any:
    """The dtype of a product's result."""
    if preferred is None:
        if operand == INTEGER and not scaled:
            return jnp.dtype("int32")
        return jnp.dtype("bfloat16") if operand in NARROW else operand
    if operand == INTEGER and jnp.dtype(preferred) == jnp.dtype("int32"):
        return jnp.dtype("int32")
    return float_dtype(preferred, "preferred_element_type")


def as_in_memory(matrices: Any, transposed: bool = False) -> tuple[Any, bool]:
    """Matrices as a kernel reads them without a copy, and whether it multiplies with the transposes of these.

    A transposed view of a row-major tensor of PyTorch is replaced by that tensor, if its elements are 16-bit floats,
    which the tensor cores take in both orders, and if the copy engine can copy its rows.

    Args:
        transposed: True if the caller multiplies with the transposes of what is given.
    """
    found = transposed_tensor(matrices)
    usable = found is not None and dtype_of(found) in HALVES and found.shape[-1] * found.itemsize % COPIED_BYTES == 0
    return (found, not transposed) if usable else (matrices, transposed)


def require_config(config: Any, kind: type[Any]) -> Any:
    """A checked configuration of a kind, the default one for None: its integer fields are positive."""
    config = kind() if config is None else config
    if not isinstance(config, kind):
        raise fail(
            pl.PalladioTypeError, "no configuration", argument="config", expected=kind.__name__, got=repr(config)
        )
    for field in dataclasses.fields(config):
        if field.type == "int":
            require_count(getattr(config, field.name), f"config.{field.name}")
    return config


def require_multiple(value: int, factor: int, argument: str, why: str) -> None:
    """Check that a number divides a size."""
    if value % factor:
        raise fail(
            pl.PalladioValueError, why, argument=f"config.{argument}", expected=f"a multiple of {factor}", got=value
        )


def require_shared(needed: int) -> None:
    """Check that buffers fit into the shared memory of a block."""
    if needed > CARD.shared_bytes:
        raise fail(
            pl.PalladioValueError,
            "the buffers do not fit into shared memory",
            argument="config",
            expected=f"at most {CARD.shared_bytes} bytes",
            got=f"{needed} bytes",
            hint="take fewer stages or smaller tiles",
        )


def require_last_axis(dtype: Any, transposed: bool, argument: str, wanted: str) -> None:
    """Check that the contracted axis is last, for dtypes with which the tensor cores accept no others."""
    if dtype in NARROW and not transposed:
        raise fail(
            pl.PalladioValueError,
            "the tensor cores take operands of 8 bits with k as their last axis only",
            argument=argument,
            expected=f"{wanted} and transpose_rhs=True",
            got="transpose_rhs=False",
        )
