"""The demands of the Hopper kernels on operands and configurations."""

from __future__ import annotations

import dataclasses
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library.checks import dtype_of, fail, require_count

CARD = plgpu.H100_SXM
"""The card that configurations are made for; each of its multiprocessors holds one block of these kernels."""

COMPUTE_GROUPS = 2
MEMORY_GROUP = COMPUTE_GROUPS
"""The warpgroup of a block that moves memory is behind those that compute."""

COMPUTE_REGISTERS, MEMORY_REGISTERS = 232, 40
"""Registers of each thread: 2 * 232 + 40 of the 512 that three warpgroups of 128 threads share."""

OPERANDS = tuple(map(jnp.dtype, ("float16", "bfloat16", "float32")))


def require_operand(value: Any, argument: str, like: Any = None) -> None:
    """An array of a dtype that the tensor cores multiply, and of the dtype of `like`."""
    dtype = dtype_of(value)
    if dtype not in OPERANDS:
        expected = "float16, bfloat16 or float32"
        rule = "the tensor cores do not multiply this dtype"
        raise fail(pl.PalladioTypeError, rule, argument=argument, expected=expected, got=str(dtype))
    if like is not None and dtype != dtype_of(like):
        rule = "the operands of a product have one dtype"
        raise fail(pl.PalladioTypeError, rule, argument=argument, expected=str(dtype_of(like)), got=str(dtype))


def require_config(config: Any, kind: type[Any]) -> Any:
    """A configuration of a kind, the default one for None, all whose integer fields are positive."""
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
    """A size that a number divides."""
    if value % factor:
        raise fail(
            pl.PalladioValueError, why, argument=f"config.{argument}", expected=f"a multiple of {factor}", got=value
        )


def require_shared(needed: int) -> None:
    """Buffers that fit into the shared memory of a block."""
    if needed > CARD.shared_bytes:
        raise fail(
            pl.PalladioValueError,
            "the buffers do not fit into shared memory",
            argument="config",
            expected=f"at most {CARD.shared_bytes} bytes",
            got=f"{needed} bytes",
            hint="take fewer stages or smaller tiles",
        )
