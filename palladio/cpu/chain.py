"""Consecutive kernel calls as one call, with the memory between them kept for the next call.

A library function is often a few small kernel calls: one computes the group of each step of a product, the next one
multiplies. For a few rows, making the arrays between them, the tables of their addresses and the initialisation
marks takes longer than the computation. A chain keeps all of that between calls, and only fills in addresses.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from palladio.array.copies import row_major
from palladio.array.foreign import to_numpy
from palladio.base import knobs
from palladio.base.dataclass import dataclass
from palladio.base.errors import Location, PalladioValueError, attach
from palladio.cpu.engine import GridCall, run
from palladio.cpu.runtime.memory import LEAST_BYTES, address_of, fill, output
from palladio.cpu.runtime.native import EMPTY_GRID, Calls
from palladio.cpu.runtime.status import LeftToEvaluator, Status
from palladio.ir.core import Atom, Eqn, Literal, Program
from palladio.ir.evaluate import Runner
from palladio.ops.arrays.shape import reshape
from palladio.types.types import ArrayType

KEPT_BYTES = 1 << 18
"""The largest memory between the calls of a chain that is kept while the chain is not running."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Step:
    """One call of a chain. Arrays are numbered: the inputs, then the results, then the intermediate arrays.

    Fields:
        name, location: of the kernel and of the equation, for errors.
        tasks: their number, without the axes in `sizes`.
        sizes: the axes of the grid whose size is known only when the call begins, each with the array that holds it,
            and whether it is an axis of tasks.
        arrays: those in its table of addresses, in order; its outputs come last.
        outputs: the arrays of its outputs.
    """

    call: GridCall
    name: str
    location: Location | None
    tasks: int
    sizes: tuple[tuple[int, int, bool], ...]
    arrays: tuple[int, ...]
    outputs: tuple[int, ...]


class _Workspace:
    """The state of one call at a time: the intermediate arrays, and the marks, table and sizes of each step."""

    def __init__(self, chain: Chain) -> None:
        self.between = [np.array(value) for value in chain.between]
        self.marks = [bytearray(step.call.marked) for step in chain.steps]
        self.cleared = [(marks, bytes(len(marks))) for marks in self.marks if marks]
        self.tables: list[Any] = []
        self.slots: list[tuple[int, int]] = []  # the numbers of inputs and results, and the places of their addresses
        self.sizes: list[Any] = []
        for step, marks in zip(chain.steps, self.marks, strict=True):
            table = step.call.table()
            for slot, number in enumerate(step.arrays):
                if number >= chain.given:
                    table[slot] = address_of(self.between[number - chain.given])
                else:
                    self.slots.append((number, ctypes.addressof(table) + slot * ctypes.sizeof(ctypes.c_void_p)))
            if marks:
                table[len(step.arrays)] = address_of(np.frombuffer(marks, np.int8))
            self.tables.append(table)
            self.sizes.append(step.call.extent(*(size or 0 for size in step.call.grid.sizes), *step.call.rows))
        self.calls = Calls(
            [
                step.call.compiled.native(table, sizes, step.tasks, [(axis, counts) for axis, _, counts in step.sizes])
                for step, table, sizes in zip(chain.steps, self.tables, self.sizes, strict=True)
            ]
        )
        for position, step in enumerate(chain.steps):
            for axis, (_, number, _) in enumerate(step.sizes):
                if number >= chain.given:
                    self.calls.locate(position, axis, address_of(self.between[number - chain.given]))
                else:
                    self.slots.append((number, self.calls.place_of_size(position, axis)))
        # They write all addresses, then run the first steps.
        self.enter = [self.calls.entry(*parts[0], self.slots) if parts else None for parts in chain.parts]


def _maker(type: ArrayType) -> Callable[[], Array]:
    """A function that makes arrays of a type, with arbitrary elements."""
    if type.size * type.dtype.itemsize < LEAST_BYTES:
        return partial(np.empty, type.shape, type.dtype)
    return partial(output, type)


class Chain:
    """A program that consists of kernel calls: a function of its inputs, and of arrays for its results.

    Args:
        types: of the results.
        inputs: their number.
        between: a template for each intermediate array.
        explain: runs calls that are left to the evaluator; None if the caller does.
    """

    makes_results = True

    def __init__(
        self,
        steps: Sequence[Step],
        inputs: int,
        types: Sequence[ArrayType],
        between: Sequence[Array],
        explain: Runner | None = None,
    ) -> None:
        self.steps = steps
        self.explain = explain
        self.results = types
        self.makers = [_maker(type) for type in types]
        self.between = between
        self.given = inputs + len(types)
        self.targets = range(inputs, self.given)
        filled = [(step.outputs[target], value) for step in steps for target, value in step.call.unset]
        self.unset = [[each for each in filled if each[0] not in self.targets], filled]  # by whether results are marked
        # The steps that run together: Python fills what one with marks has not written before the next one reads it.
        alone = [bool(step.call.compiled.callbacks) for step in steps]
        noted = [step.call.marked > 0 for step in steps]
        self.parts = [_parts(alone, alone), _parts(alone, [a or b for a, b in zip(alone, noted, strict=True)])]
        self.inputs = inputs
        self.idle: list[_Workspace] = []

    def __reduce__(self) -> Any:
        explain = self.explain
        if explain is not None and not isinstance(explain, _Later):
            explain = _Later(pickle.dumps(explain, pickle.HIGHEST_PROTOCOL))
        return Chain, (self.steps, self.inputs, self.results, self.between, explain)

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        if out is not None and not all(array.flags.aligned for array in out):
            for target, result in zip(out, self(values), strict=True):  # non-temporal stores write only whole vectors
                np.copyto(target, result)
            return out
        results = [make() for make in self.makers] if out is None else out
        try:
            return self.run(values, results)
        except LeftToEvaluator:
            if self.explain is None:
                raise
            return self.explain(values, out)

    def own_rows(self, positions: Sequence[int], written: bool) -> Callable[..., Sequence[Any]] | None:
        """The program as a function of arrays, the rows of its results, arrays for these or None, and a weight.

        The arrays may have fewer rows than their types say; the program's author guarantees that it accesses no others.
        None if it might copy whole blocks of them.

        Args:
            positions: of the inputs that have fewer rows.
            written: the results have fewer too, and each of them is written.
        """
        results = self.targets if written else ()
        blocks = [
            view.access
            for step in self.steps
            for number, view in zip(step.arrays[step.call.grid.scalars :], step.call.grid.scheduled.blocks, strict=True)
            if number in (*positions, *results)
        ]
        if not blocks or any(access != "view" for access in blocks):
            return None

        def run(values: Sequence[Any], rows: int, out: Sequence[Any] | None, weight: int) -> Sequence[Any]:
            types = [ArrayType((rows, *type.shape[1:]), type.dtype) if written else type for type in self.results]
            aligned = out is not None and all(array.flags.aligned for array in out)
            results = out if out is not None and aligned else [output(type) for type in types]
            self.run(values, results, weight, not written)
            if out is None or aligned:
                return results
            for target, result in zip(out, results, strict=True):
                np.copyto(target, result)
            return out

        return run

    def prepared(self, rows: int | None, weight: int, explain: Runner | None = None) -> Prepared:
        """The program, of one result, as a function of arrays in row-major order, without checks.

        Args:
            rows: of the result, which has these rows alone, each of them written; None for all.
            weight: as in `palladio.cpu.engine.run`.
            explain: runs calls on all rows that are left to the evaluator, by default as that of the chain.
        """
        return Prepared(self, rows, weight, (explain or self.explain) if rows is None else None)

    def run(self, values: Sequence[Any], results: Sequence[Any], weight: int = 1, marked: bool = True) -> Sequence[Any]:
        """Run the steps, on copies of arrays in another order than row-major.

        Args:
            weight, marked: as in `run_at`.
        """
        arrays = [
            value if type(value) is np.ndarray and value.flags.c_contiguous else row_major(value) for value in values
        ]
        arrays += results
        self.run_at(arrays, arrays, weight, marked)
        return results

    def run_at(self, given: Sequence[Any], owners: Sequence[Any], weight: int, marked: bool) -> None:
        """Run the steps in the memory of inputs and results.

        Few functions take part: after a product of large matrices, all of their code comes from memory.

        Args:
            given: NumPy arrays, or addresses.
            owners: of the memory, in the same order; the results are NumPy arrays.
            weight: as in `palladio.cpu.engine.run`.
            marked: whether unwritten parts of the results are filled.
        """
        threads = knobs.thread_count()  # first, since it may raise: nothing is written then
        try:
            work = self.idle.pop()
        except IndexError:
            work = _Workspace(self)
        calls = work.calls
        if self.unset[marked]:
            arrays = [*owners, *work.between]
            for number, value in self.unset[marked]:
                fill(arrays[number], value)
        if marked:
            for marks, zeros in work.cleared:
                marks[:] = zeros
        enter = work.enter[marked]
        for first, last in self.parts[marked]:
            try:
                status = calls.run(first, last, threads, weight, enter, given)
                if status != Status.DONE:
                    self._go_on(work, status, last, [*owners, *work.between], threads, weight)
            except LeftToEvaluator:
                raise
            except Exception as error:
                step = self.steps[calls.at]
                with attach(step.location, f"running {step.name}"):
                    raise error
            enter = None
            if marked and 0 in work.marks[last - 1]:
                arrays, last_step = [*owners, *work.between], self.steps[last - 1]
                last_step.call.fill_rest(work.marks[last - 1], [arrays[number] for number in last_step.outputs])
        # Not after an exception, when some thread might still be writing to it.
        self.idle.append(work)

    def _go_on(
        self, work: _Workspace, status: int, last: int, arrays: Sequence[Any], threads: int, weight: int
    ) -> None:
        """Run a step at which native code has stopped, and those after it."""
        while status != Status.DONE:
            number = work.calls.at
            tasks = work.calls.tasks(number)
            if status == EMPTY_GRID:
                raise PalladioValueError("a grid size is at least 1", got=tasks)
            table, sizes = work.tables[number], work.sizes[number]
            run(self.steps[number].call.compiled, table, sizes, tasks, (arrays, work), weight=weight)
            if number + 1 == last:
                return
            status = work.calls.run(number + 1, last, threads, weight)


@dataclass(frozen=True)
class _Later:
    """A runner that stays pickled until a call needs it: few calls are left to the evaluator."""

    data: bytes

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        run: Runner = pickle.loads(self.data)
        return run(values, out)


class Prepared:
    """A chain of one result, as a function of arrays in row-major order, without checks."""

    def __init__(self, chain: Chain, rows: int | None, weight: int, explain: Runner | None) -> None:
        (type,) = chain.results
        self.chain = chain
        self.weight = weight
        self.explain = explain
        self.marked = rows is None
        self.type = type if rows is None else ArrayType((rows, *type.shape[1:]), type.dtype)
        self.make = _maker(self.type)

    def __call__(self, values: Sequence[Array], out: Array | None = None) -> Array | None:
        return self.at(values, values, out)

    def at(self, given: Sequence[Any], values: Sequence[Any], out: Array | None = None) -> Array | None:
        """The result for inputs of any library, given by their addresses, or as NumPy arrays.

        Args:
            out: an aligned, writable array in row-major order for the result, apart from the inputs. If it has another
                shape or dtype, nothing is written, and None is returned.
        """
        if out is not None and (out.shape != self.type.shape or out.dtype != self.type.dtype):
            return None
        result = self.make() if out is None else out
        try:
            self.chain.run_at((*given, result), (*values, result), self.weight, self.marked)
        except LeftToEvaluator:
            if self.explain is None:
                raise
            return self.explain([to_numpy(value, "args") for value in values], [result])[0]  # type: ignore[no-any-return]
        return result


def _parts(begin: Sequence[bool], end: Sequence[bool]) -> list[tuple[int, int]]:
    """The first and the end of each range of steps, by whether a step begins one, and ends one; none without steps."""
    inside = [n for n in range(1, len(end)) if begin[n] or end[n - 1]]
    return [*itertools.pairwise([0, *inside, len(end)])] if end else []


def chained(program: Program, calls: Mapping[Eqn, Any], explain: Runner | None = None) -> Chain | None:
    """A program as a chain; None if it has equations besides plain kernel calls and `reshape`, or much memory between.

    Args:
        calls: the kernel calls of the program that are compiled.
        explain: as in `Chain`.
    """
    same: dict[Atom, Atom] = {eqn.outputs[0]: eqn.inputs[0] for eqn in program.eqns if eqn.op is reshape}
    eqns = [eqn for eqn in program.eqns if eqn.op is not reshape]  # the memory is the same
    found = [calls.get(eqn) for eqn in eqns]
    made = {var for eqn in eqns for var in eqn.outputs}
    plain = all(isinstance(call, GridCall) and call.plain for call in found)
    if not plain or not {*program.outputs} <= made or len({*program.outputs}) < len(program.outputs):
        return None
    numbers: dict[Atom, int] = {atom: n for n, atom in enumerate((*program.inputs, *program.outputs))}
    inputs_and_results, between = len(numbers), list[Array]()
    for atom in (atom for eqn in program.eqns for atom in (*eqn.inputs, *eqn.outputs)):
        if atom in same:
            numbers[atom] = numbers[same[atom]]
        elif atom not in numbers:
            numbers[atom] = inputs_and_results + len(between)
            value = atom.value if isinstance(atom, Literal) else np.empty(atom.type.shape, atom.type.dtype)  # type: ignore[union-attr]
            between.append(np.asarray(value, atom.type.dtype))  # type: ignore[union-attr]
    if sum(array.nbytes for array in between) > KEPT_BYTES:
        return None
    steps = []
    for eqn, call in zip(eqns, found, strict=True):
        dynamic = [axis for axis, size in enumerate(call.grid.sizes) if size is None]  # type: ignore[union-attr]
        parallel = call.grid.scheduled.tasks  # type: ignore[union-attr]
        sizes = tuple((axis, numbers[atom], axis in parallel) for axis, atom in zip(dynamic, eqn.inputs, strict=False))
        outputs = tuple(numbers[var] for var in eqn.outputs)
        arrays = (*(numbers[atom] for atom in eqn.inputs[len(dynamic) :]), *outputs)
        tasks = math.prod(call.grid.sizes[axis] or 1 for axis in parallel)
        steps.append(Step(call, eqn.kernel.name, eqn.location, tasks, sizes, arrays, outputs))  # type: ignore[arg-type]
    types = [var.type for var in program.outputs]
    return Chain(steps, len(program.inputs), types, between, explain)  # type: ignore[arg-type]
