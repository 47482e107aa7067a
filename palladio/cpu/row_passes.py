"""Equations that go through the rows of the same block, emitted row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import TRUE, Int, V, i64
from palladio.cpu.emit.lazy_array import (
    STREAMED_LANES,
    LazyArray,
    StridedArray,
    array_in,
    fill,
    prefetching,
    put_ragged_ends,
    put_streamed,
    widths,
)
from palladio.cpu.emit.llvm_types import I64
from palladio.cpu.emit.scope import RefBinding, Scope
from palladio.cpu.rules.reduce import REDUCTIONS, Reducer
from palladio.ir.core import Atom, Eqn, Var
from palladio.lower.fusion.row_groups import LEAST_PASSES, RowGroup, adds_rows, is_lazy, row_group
from palladio.lower.refused import Refused
from palladio.ops.arrays.keep import tee
from palladio.ops.references.memory import load, store


def run_row_group(scope: Scope, eqns: Sequence[Eqn], first: int) -> Sequence[Eqn] | None:
    """Emit equations from the one at `first` on row by row, if they are passes through the same block.

    Returns the equations that are left; None if nothing was emitted.
    """
    group = row_group(eqns, first, least=2)
    if group is None or any(eqn.op is not store and eqn.op.name not in REDUCTIONS for eqn in group.passes):
        return None
    passes = _RowPasses(scope, group)
    if not passes.fit() or (len(group.passes) < LEAST_PASSES and not passes.overlaps):
        return None
    passes.run()
    return group.rest


@dataclass
class _Values:
    """The arrays that passes compute in one loop, each element once.

    Fields:
        lazily: the equations of arrays that are computed where they are used.
        prefetches: whether the elements of the next task are prefetched.
        arrays: by variable.
        found: the elements computed so far, by basic block.
        of_row: the current row's element of arrays with one element per row.
    """

    scope: Scope
    lazily: Mapping[Atom, Eqn]
    prefetches: bool
    arrays: dict[Atom, LazyArray] = field(default_factory=dict)
    found: dict[object, V] = field(default_factory=dict)
    of_row: dict[object, V] = field(default_factory=dict)

    def array(self, atom: Atom) -> LazyArray:
        """The array of a variable or literal."""
        if atom not in self.arrays:
            self.arrays[atom] = self.remembered(atom, self.derived(atom))
        return self.arrays[atom]

    def derived(self, atom: Atom) -> LazyArray:
        eqn = self.lazily.get(atom)
        if eqn is not None:
            inputs = [self.array(each) for each in eqn.inputs]
            (array,) = self.scope.function.rules[eqn.op.name](self.scope, *inputs, **eqn.params)
            return array
        array, last = self.scope.array(atom), isinstance(atom, Var) and not self.scope.uses[atom]
        return prefetching(self.scope.e, array) if self.prefetches and last and array.ahead is not None else array

    def remembered(self, atom: Atom, array: LazyArray) -> LazyArray:
        """The array, with each element computed once in a basic block."""
        e = self.scope.e

        def at(index: Sequence[Int], width: int) -> V:
            place = (atom, tuple(index), width)
            if place in self.of_row:
                return self.of_row[place]
            key = (e.block, *place)
            if key not in self.found:
                self.found[key] = array.at(index, width)
            return self.found[key]

        return replace(array, at=at) if array.shape else array

    def compute_row(self, row: Int, rows: int) -> None:
        """Compute the current row's element of arrays with one element per row."""
        for atom, array in [*self.arrays.items()]:
            if array.shape in ((rows,), (rows, 1)):
                index = (row, 0)[: len(array.shape)]
                self.of_row[atom, index, 1] = array.at(index, 1)


@dataclass
class _Pass:
    """One equation, with the buffer of its results; they are written past the caches if `streamed`."""

    eqn: Eqn
    target: StridedArray
    reducer: Reducer | None = None
    streamed: bool = False

    @property
    def vector_bytes(self) -> int:
        """The bytes of a vector of results."""
        return registers.LANES * self.target.dtype.itemsize

    @property
    def atom(self) -> Atom:
        """The array that it goes through."""
        atom: Atom = self.eqn.inputs[-1]
        return atom

    @property
    def reduces_rows(self) -> bool:
        """True for the reduction of a row, on which passes after it may depend."""
        return self.reducer is not None and not adds_rows(self.eqn)


class _RowPasses:
    """The passes of a group while they are emitted."""

    def __init__(self, scope: Scope, group: RowGroup) -> None:
        self.scope = scope
        self.e = scope.e
        self.group = group
        self.lazily = {eqn.outputs[0]: eqn for eqn in scope.program.eqns if is_lazy(eqn) and eqn.outputs[0].type.shape}

    def fit(self) -> bool:
        """True if rows are independent: none reads what another one has stored, and no operand is a product."""
        stored = [self.place(eqn.ref).memory for eqn in self.group.passes if eqn.op is store]
        sums = [eqn for eqn in self.group.passes if eqn.op is not store and adds_rows(eqn)]
        made = {var for eqn in self.group.eqns for var in eqn.outputs}
        passed = [eqn.inputs[-1] for eqn in self.group.passes]
        read = [self.scope.array(atom) for atom in self.operands(passed) if atom not in made]
        written_in_passing = {eqn.outputs[0] for eqn in self.scope.program.eqns if eqn.op is tee}
        loads = [eqn for eqn in self.group.eqns if eqn.op is load and eqn.transforms]
        whole_vectors = self.group.shape[1] % registers.LANES == 0 or not any(memory.streamed for memory in stored)
        own_rows = all(array.reads.get(memory, True) for array in read for memory in stored)
        return (
            whole_vectors
            and own_rows
            and written_in_passing.isdisjoint(self.operands(passed))
            and not any(self.place(eqn.ref).memory in stored for eqn in loads)
            and all(array.fill is None for array in read)
            and all(REDUCTIONS[eqn.op.name].combines_rows(eqn.array.type, eqn.axes) for eqn in sums)
        )

    @property
    def overlaps(self) -> bool:
        """True if a row is reduced while the results of the one before are written past the caches.

        One after the other, memory would be read during the reduction and written during the stores; in one loop it is
        read and written all the time. Where blocks are prefetched it is busy already.
        """
        if len(self.group.passes) != 2 or self.scope.function.ahead:
            return False
        reduction, stored = self.group.passes
        whole = self.group.shape[1] % registers.LANES == 0 and self.group.shape[1] >= STREAMED_LANES
        return (
            whole
            and stored.op is store
            and reduction.op is not store
            and not adds_rows(reduction)
            and (self.place(stored.ref).memory.streamed and self.place(stored.ref).buffer.strides[-1] == 1)
        )

    def place(self, ref: Var) -> RefBinding:
        """The memory of a reference."""
        found = self.scope.entries[ref]
        if not isinstance(found, RefBinding):
            raise Refused("an array stands where a reference is needed")
        return found

    def operands(self, atoms: Sequence[Atom]) -> set[Atom]:
        """The arrays in memory that some arrays are computed from."""
        left, found = [*atoms], set()
        while left:
            atom = left.pop()
            if atom not in found:
                found.add(atom)
                left += self.lazily[atom].inputs if atom in self.lazily else ()
        return {atom for atom in found if atom not in self.lazily}

    def run(self) -> None:
        """Emit the group."""
        segments: list[list[_Pass]] = []
        for eqn in self.group.eqns:
            if eqn not in self.group.passes:
                self.scope.function.emit(self.scope, eqn)
                continue
            made = self.started(eqn)
            if segments and self.shares_loop(made, segments[-1]):
                segments[-1].append(made)
            else:
                segments.append([made])
        rows, e = self.group.shape[0], self.e
        values = [_Values(self.scope, self.lazily, each is segments[-1]) for each in segments]
        for each, its in zip(segments, values, strict=True):
            for made in each:
                array = its.array(made.atom)
                if made.reducer is not None:
                    made.reducer.x = array
        if self.overlaps:
            (reducer,) = [made.reducer for made in segments[0] if made.reducer is not None]
            self.overlap(reducer, segments[1][0], values[1])
            return
        with e.loop(0, rows) as row:
            for each, its in zip(segments, values, strict=True):
                its.compute_row(row, rows)
                if each[0].reduces_rows:
                    reducer, *others = [made.reducer for made in each if made.reducer is not None]
                    reducer.across((row,), others)
                else:
                    self.columns_of(each, its, row)

    def overlap(self, reducer: Reducer, stored: _Pass, values: _Values) -> None:
        """All rows, each stored while the next one is reduced."""
        e, (rows, columns), lanes = self.e, self.group.shape, registers.LANES
        array, target = values.array(stored.atom), stored.target
        reducer.across((0,))
        with e.loop(0, rows - 1) as row:
            values.compute_row(row, rows)
            start = put_ragged_ends(e, array, target, (row,))

            def store_beside(first: Int, count: int) -> None:
                for offset in range(0, count, lanes):
                    column = e.add(e.add(first, offset), start)
                    with e.when(e.compare("icmp sle", e.index(column), i64(columns - lanes))):
                        put_streamed(e, array, target, (row, column))

            reducer.across((e.add(row, 1),), meanwhile=store_beside)
        values.compute_row(rows - 1, rows)
        start = put_ragged_ends(e, array, target, (rows - 1,))
        with e.loop(start, columns - lanes + 1, lanes) as column:
            put_streamed(e, array, target, (rows - 1, column))

    def shares_loop(self, made: _Pass, others: Sequence[_Pass]) -> bool:
        """True if a pass is in the same loop over columns as those before it."""
        if made.reduces_rows != others[-1].reduces_rows:
            return False
        results = {var for other in others for var in other.eqn.outputs}
        return results.isdisjoint(self.operands([made.atom]))

    def started(self, eqn: Eqn) -> _Pass:
        """The pass of an equation, with memory for its results."""
        scope = self.scope
        scope.use(eqn)
        if eqn.op is store:
            place = self.place(eqn.ref)
            return _Pass(eqn, place.buffer, streamed=place.memory.streamed)
        shown = scope.array(eqn.array)
        reducer = REDUCTIONS[eqn.op.name].of(scope, shown, eqn.axes)
        scope.entries[eqn.outputs[0]] = array_in(self.e, reducer.target)
        if adds_rows(eqn):
            fill(self.e, reducer.target, reducer.start)
        return _Pass(eqn, reducer.target, reducer)

    def columns_of(self, passes: Sequence[_Pass], values: _Values, row: Int) -> None:
        """One row of stores and of sums of rows; stores go past the caches only if the row is aligned to vectors."""
        e, aligned = self.e, TRUE
        streamed = [made for made in passes if made.streamed]
        if not streamed:
            self.columns(passes, values, row)
            return
        for made in streamed:
            address = e.value(I64, f"ptrtoint {made.target.address(e, (row, 0))} to i64")
            over = e.binary("and", address, i64(made.vector_bytes - 1))
            aligned = e.binary("and", aligned, e.compare("icmp eq", over, i64(0)))
        with e.when(aligned):
            self.columns(passes, values, row)
        with e.when(e.negated(aligned)):
            self.columns([replace(made, streamed=False) for made in passes], values, row)

    def columns(self, passes: Sequence[_Pass], values: _Values, row: Int) -> None:
        """One row, vector by vector; all passes compute their values before memory is written."""
        e = self.e
        for start, end, width in widths(self.group.shape[1]):
            with e.loop(start, end, width) as column:
                found = []
                for made in passes:
                    new, index = values.array(made.atom).at((row, column), width), [row, column]
                    if made.reducer is not None:
                        index = [column]
                        new = made.reducer.combined(made.target.at(e, index, width), new)
                    found.append((made, index, new))
                for made, index, new in found:
                    if made.streamed:
                        value = registers.to_memory(e, new, made.target.dtype)
                        e.stream(value, made.target.address(e, index), made.vector_bytes)
                    else:
                        made.target.put(e, index, new, width)
