"""Execution of programs on a card: on arrays in its memory, or on copies of arrays of the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from palladio.array.on_card import CardArray, Library
from palladio.base.errors import PalladioNotImplementedError
from palladio.hopper.kernels import lowered, require_runnable
from palladio.hopper.launch import stored
from palladio.hopper.launch.calls import KeptCall, KernelCall, on_host_arrays
from palladio.hopper.launch.driver import driver
from palladio.hopper.lowered import FewerRows
from palladio.ir.core import Eqn, Literal, Program, Var
from palladio.ir.evaluate import evaluate, written
from palladio.ops.kernel_calls import kernel_calls, on_kernels
from palladio.types.types import ArrayType


class OneKernel:
    """A program for a card that is one kernel with the program's operands and results; values as in `OnCard`.

    Raises:
        CardError: a card, its driver or cuda-bindings is missing.
    """

    def __init__(self, call: KernelCall) -> None:
        driver()
        self.call = call

    @property
    def results(self) -> list[ArrayType]:
        """The types of the results."""
        found = [each for each in self.call.lowered.arrays if each.role == "output"]
        return [ArrayType(each.shape, each.dtype) for each in sorted(found, key=lambda each: each.position)]

    def kept(self, types: Sequence[ArrayType]) -> KeptCall | None:
        """The fast path for arrays of these types; None for a kernel without one."""
        made = KeptCall(self.call, [(type.shape, type.dtype) for type in types])
        return made if made.usable else None

    def of_fewer_rows(self, fewer: FewerRows) -> OneKernel | None:
        """The program for arrays with fewer rows, as `KernelCall.of_fewer_rows`."""
        found = self.call.of_fewer_rows(fewer)
        return None if found is None else OneKernel(found)

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The values of the kernel's outputs."""
        call, first = self.call, next((value for value in values if isinstance(value, CardArray)), None)
        if first is None:
            return written(on_host_arrays(call, values), out)
        library, device = first.library, first.device
        taken = call.takes_from_host
        operands = [value if taken(n) else _uploaded(value, library, device) for n, value in enumerate(values)]
        return call(operands, library, device, out or ())


class Stored:
    """A program for a card that may be on disk, under a key of its parts."""

    def __init__(self, parts: Hashable, types: Sequence[ArrayType]) -> None:
        self._key = stored.key(parts, types)

    def find(self) -> OneKernel | None:
        """The program, if it is there."""
        call = None if self._key is None else stored.find(self._key)
        return None if call is None else OneKernel(call)

    def keep(self, program: Any) -> None:
        """Store an `OnCard` under the key, once it is compiled, if it is one kernel with one result.

        A kernel that reads an aliased input is not stored: `require_runnable` needs its program.
        """
        call, key = program.only_call, self._key
        if key is not None and call is not None and not call.lowered.copied and len(OneKernel(call).results) == 1:
            call.compiled = lambda lowered, cubin: stored.keep(key, lowered, cubin)


class OnCard:
    """A program for a card.

    Values are `CardArray`s and numbers of the host, or all of them are NumPy arrays, which are copied to the card and
    back. A card runs only kernels; other equations are evaluated on the host.

    Args:
        calls: those of its kernels, if they are made already.

    Raises:
        Refused: a kernel is not compiled for Hopper.
        CardError: a card, its driver or cuda-bindings is missing.
    """

    def __init__(self, program: Program, calls: Mapping[Eqn, KernelCall] | None = None) -> None:
        driver()
        self._program = program
        self._calls = {eqn: KernelCall(lowered(eqn)) for eqn in kernel_calls(program)} if calls is None else calls
        copying = {eqn: _by_copies(eqn, call) for eqn, call in self._calls.items()}
        self._of_host_arrays = on_kernels(copying).runner(program)

    @property
    def only_call(self) -> KernelCall | None:
        """The kernel call of a program that is one kernel with the program's inputs and outputs; else None."""
        program = self._program
        if len(program.eqns) != 1 or not self._calls:
            return None
        (eqn,) = program.eqns
        same = tuple(eqn.inputs) == tuple(program.inputs) and tuple(eqn.outputs) == tuple(program.outputs)
        return self._calls.get(eqn) if same else None

    def kept(self, types: Sequence[ArrayType]) -> KeptCall | None:
        """The fast path for arrays of these types; None for a program without one."""
        call = self.only_call
        return None if call is None else OneKernel(call).kept(types)

    def of_fewer_rows(self, fewer: FewerRows) -> OneKernel | OnCard | None:
        """The program for arrays with fewer rows; None if that takes other machine code.

        Arrays between kernels keep their sizes, so that one kernel has to guard the rows that another leaves out.
        """
        call = self.only_call
        if call is not None or not fewer.guarded or fewer.blocks is not None:
            return None if call is None else OneKernel(call).of_fewer_rows(fewer)
        program, results = self._program, fewer.results
        sizes = {program.inputs[n]: size for n, size in fewer.operands.items()}
        sizes |= {var: results[n] for n, var in enumerate(program.outputs) if n in results and isinstance(var, Var)}
        calls = {}
        for eqn, each in self._calls.items():
            given = {n: sizes[atom] for n, atom in enumerate(eqn.inputs) if isinstance(atom, Var) and atom in sizes}
            made = {n: sizes[var] for n, var in enumerate(eqn.outputs) if var in sizes}
            found = each.of_fewer_rows(fewer.for_kernel(given, made))
            if found is None:
                return None
            calls[eqn] = found
        return OnCard(program, calls)

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        """The values of the program's outputs."""
        first = next((value for value in values if isinstance(value, CardArray)), None)
        if first is None:
            return self._of_host_arrays(values, out)
        return self._of_card_arrays(values, first.library, first.device, out)

    def _of_card_arrays(
        self, values: Sequence[Any], library: Library, device: int, out: Sequence[Any] | None
    ) -> Sequence[Any]:
        program = self._program
        known: dict[Any, Any] = dict(zip(program.inputs, values, strict=True))
        wanted = {} if out is None else dict(zip(program.outputs, out, strict=True))
        for eqn in program.eqns:
            call = self._calls.get(eqn)
            if call is None:
                known.update(zip(eqn.outputs, _on_host(eqn, known), strict=True))
                continue
            given = [_value(known, atom) for atom in eqn.inputs]
            require_runnable(eqn, given)
            operands = [
                value if call.takes_from_host(n) else _uploaded(value, library, device) for n, value in enumerate(given)
            ]
            outputs = call(operands, library, device, [wanted.get(var) for var in eqn.outputs])
            known.update(zip(eqn.outputs, outputs, strict=True))
        found = [_uploaded(_value(known, atom), library, device) for atom in program.outputs]
        return found if out is None else [_moved(*each) for each in zip(found, out, strict=True)]


def _value(known: dict[Any, Any], atom: Var | Literal) -> Any:
    return atom.value if isinstance(atom, Literal) else known[atom]


def _uploaded(value: Any, library: Library, device: int) -> CardArray:
    return value if isinstance(value, CardArray) else library.upload(np.asarray(value), device)


def _moved(found: CardArray, wanted: CardArray) -> CardArray:
    """The output array `wanted`, with a copy of a value that no kernel wrote there: an input or a constant."""
    if found.address != wanted.address and found.nbytes:
        known = driver()
        with known.current(known.hopper(found.device)):
            stream = found.library.stream(found.device)
            known.call("cuMemcpyDtoDAsync", wanted.address, found.address, found.nbytes, stream)
    return wanted


def _on_host(eqn: Eqn, known: dict[Any, Any]) -> Sequence[Any]:
    """The outputs of an equation that is not a kernel call, evaluated on the host from constants and numbers.

    Raises:
        PalladioNotImplementedError: an input is an array of the card.
    """
    variables = tuple(dict.fromkeys(atom for atom in eqn.inputs if isinstance(atom, Var)))
    values = [known[var] for var in variables]
    if any(isinstance(value, CardArray) for value in values):
        raise PalladioNotImplementedError(
            f"{eqn.op.name} between the kernels of a program is not computed on a GPU",
            hint="call each kernel by itself, and do the rest with the library of the arrays",
            location=eqn.location,
        )
    return evaluate(Program(variables, (eqn,), eqn.outputs, eqn.op.name), values)


def _by_copies(eqn: Eqn, call: KernelCall) -> Callable[..., Sequence[Any]]:
    """The evaluation of one kernel call on arrays of the host."""

    def run(*values: Any) -> Sequence[Any]:
        require_runnable(eqn, values)
        return on_host_arrays(call, values)

    return run
