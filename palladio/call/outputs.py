"""Outputs of a call: the flat types and the structure of `out_shape`, and which outputs alias an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from palladio.base import trees
from palladio.base.errors import (
    PalladioError,
    PalladioTypeError,
    PalladioValueError,
    UnwrittenOutputWarning,
    warn_at,
)
from palladio.ir.core import Program, Var
from palladio.pipeline.block_maps import specs_for
from palladio.pipeline.specs import BlockSpec, no_block_spec
from palladio.types import dtypes
from palladio.types.effects import EffectKind
from palladio.types.scratch import SemaphoreKind
from palladio.types.types import (
    COUNTING,
    SYNCHRONISING,
    ArrayType,
    MemoryRef,
    Owned,
    RefType,
    Type,
    described_shape,
)


def checked_aliases(aliases: Mapping[int, int], outputs: int) -> tuple[tuple[int, int], ...]:
    if not isinstance(aliases, Mapping):
        raise PalladioTypeError(
            "a dictionary from the number of an input to the number of an output",
            argument="input_output_aliases",
            expected="such as {0: 0}",
            got=repr(aliases),
        )
    for source, target in aliases.items():
        if not isinstance(source, int) or not isinstance(target, int) or source < 0 or not 0 <= target < outputs:
            raise PalladioValueError(
                "maps the number of an input to the number of an output",
                argument="input_output_aliases",
                expected=f"an output below {outputs}",
                got=f"{source}: {target}",
                jax=f"input_output_aliases contains the mapping '{source}:{target}' with output index {target} outside "
                f"the range [0, {outputs})",
            )
    if len(set(aliases.values())) != len(aliases):
        raise PalladioValueError("two inputs alias one output", argument="input_output_aliases", got=dict(aliases))
    return tuple(sorted(aliases.items()))


def check_aliased_types(aliases: Sequence[tuple[int, int]], inputs: Sequence[Type], outputs: Sequence[Type]) -> None:
    """Refuse an alias of an input that the call does not have, or that is not of the output's type."""
    for source, target in aliases:
        if source >= len(inputs):
            raise PalladioValueError(
                "names an input that the call does not have",
                argument="input_output_aliases",
                expected=f"an input below {len(inputs)}",
                got=source,
                jax=f"input_output_aliases contains the mapping '{source}:{target}' with input index {source} outside "
                f"the range [0, {len(inputs)})",
            )
        if inputs[source] != outputs[target]:
            raise PalladioValueError(
                f"input {source} and output {target} are aliased but differ",
                argument="input_output_aliases",
                expected=str(outputs[target]),
                got=str(inputs[source]),
                jax=f"input_output_aliases contains the mapping '{source}:{target}' referring to input[{source}] with "
                f"abstract value {_in_jax(inputs[source])} and to output[{target}] with a different abstract value "
                f"{_in_jax(outputs[target])}",
            )


def _in_jax(type: Type) -> str:
    return f"{type.dtype}[{','.join(map(str, type.shape))}]"


class Outputs:
    """The flat types and the structure of `out_shape`; None for a call without outputs, which returns None.

    `owners` are the meshes of outputs such as `pltpu.VMEM((8,), dtype) @ mesh`; `semaphores` is the kind of each output
    that is semaphores, by its position.
    """

    def __init__(self, out_shape: Any) -> None:
        if isinstance(out_shape, list):
            out_shape = tuple(out_shape)
        self.absent = out_shape is None
        self.alone = not self.absent and not isinstance(out_shape, tuple)
        self.tree: tuple[Any, ...] = (out_shape,) if self.alone else out_shape or ()
        leaves, self.structure = trees.flatten(out_shape)
        self.owners = tuple(leaf.mesh for leaf in leaves if isinstance(leaf, Owned))
        leaves = [leaf.what if isinstance(leaf, Owned) else leaf for leaf in leaves]
        leaves = [leaf() if isinstance(leaf, SemaphoreKind) else leaf for leaf in leaves]
        names = trees.leaf_names(out_shape, "out_shape")
        self.types = tuple(output_type(leaf, name) for leaf, name in zip(leaves, names, strict=True))
        self.spaces = tuple(leaf.memory_space if isinstance(leaf, MemoryRef) else None for leaf in leaves)
        self.semaphores = {n: space for n, space in enumerate(self.spaces) if space is not None and space in COUNTING}

    @property
    def arrays(self) -> Outputs:
        """The outputs with arrays of counts in place of semaphores."""
        found = copy(self)
        found.spaces = tuple(None if space in COUNTING else space for space in self.spaces)
        found.semaphores = {}
        return found

    def specs(self, out_specs: Any, count: int) -> list[Any]:
        """One spec per output."""
        if out_specs is no_block_spec:
            return [None if space is None else BlockSpec(memory_space=space) for space in self.spaces]
        return specs_for(
            "out_specs",
            (out_specs,) if self.alone and not isinstance(out_specs, (tuple, list)) else out_specs,
            self.tree,
            count,
            semaphores=True,
        )


def output_type(leaf: Any, name: str) -> ArrayType:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        raise PalladioTypeError("an output is described by a shape and a dtype", argument=name, got=repr(leaf))
    try:
        return ArrayType(described_shape(shape), dtypes.canonical(str(dtype).removeprefix("torch.")))
    except PalladioError as error:
        error.argument = name
        raise


def warn_of_unwritten(
    name: str,
    types: Sequence[ArrayType],
    aliases: Sequence[tuple[int, int]],
    programs: Sequence[Program],
    references: Sequence[Sequence[Var]],
) -> None:
    """Warn of each output that no program of a call can write to, at the kernel's line.

    Args:
        name: of the call.
        types, aliases: of its outputs.
        references: those of each program to the outputs.
    """
    given = {target for _, target in aliases}
    for target, type in enumerate(types):
        variables = [each[target] for each in references]
        counts = any(isinstance(var.type, RefType) and var.type.space in SYNCHRONISING for var in variables)
        if target in given or not type.size or counts or any(map(_may_write, programs, variables)):
            continue
        hint = variables[0].hint
        message = (
            f"the kernel {name} never writes to its output {hint or target}, whose values are uninitialised; "
            f"{hint or 'output'}[...] = value writes it"
        )
        warn_at(message, UnwrittenOutputWarning, programs[0].location)


def _may_write(program: Program, output: Var) -> bool:
    """True if an equation does anything with a reference besides reading it."""
    for eqn in program.eqns:
        if output in eqn.inputs and {kind for kind, var in eqn.effects if var is output} != {EffectKind.READ}:
            return True
    return False
