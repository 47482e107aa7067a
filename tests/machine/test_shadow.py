"""Shadow memory: regions against reads through `ops.access`, states against a model with one entry per element."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from palladio.base.errors import InternalError
from palladio.machine.check.regions import Region, Regions
from palladio.machine.check.shadow import Access, Shadow, region
from palladio.machine.run.clocks import Component
from palladio.types import dtypes
from palladio.types.transforms import Bitcast, Index, Operand, Peer, Reshape, SliceEntry, Transpose
from palladio.types.types import ArrayType
from tests.machine.stacks import DTYPES, Stack

Array = Any
ME, YOU, THIRD = Component(0, 0), Component(0, 1), Component(1, 0)
WHOLE = ()
SHAPES = [(), (7,), (6, 8), (4, 6, 8), (1, 12, 4), (0, 3)]


def access(component: Component, epoch: int = 1, **kinds: bool) -> Access:
    return Access(component, epoch, "site", "thread", **kinds)


def never(previous: Access, current_is_write: bool) -> bool:
    return False


def always(previous: Access, current_is_write: bool) -> bool:
    return True


def row(shadow: Shadow, number: int) -> Region:
    return region(
        shadow, (Index((Operand(0), *(SliceEntry(0, n) for n in shadow.regions.shape[1:]))),), [np.int32(number)]
    )


# Regions


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_region_has_the_elements_that_a_read_reaches(shape: tuple[int, ...], seed: int) -> None:
    chance = random.Random(seed)
    for length in range(6):
        root = ArrayType(shape, chance.choice(DTYPES))
        stack = Stack(chance, root, length)
        regions = Regions(shape, root.dtype.itemsize)
        found = regions.resolve(stack.transforms, stack.indices)
        np.testing.assert_array_equal(found.mask(shape), stack.reached(), str(stack.transforms))
        mask = stack.mask()
        found = regions.resolve(stack.transforms, stack.indices, mask)
        np.testing.assert_array_equal(found.mask(shape), stack.reached(mask), str(stack.transforms))


def test_rows_of_a_leading_slot_are_one_box() -> None:
    stack = (
        Index((Operand(0), SliceEntry(0, 64), SliceEntry(0, 32))),
        Reshape((1, 64, 4, 8)),
        Index((0, SliceEntry(16, 32), Operand(1), SliceEntry(0, 8))),
        Transpose((1, 0)),
    )
    found = Regions((3, 64, 32)).resolve(stack, [np.int32(2), np.int32(3)])
    assert found.bands == (((2, 3),), ((16, 48),), ((24, 32),))
    assert found.chosen is None


def test_a_part_of_a_merge_of_two_axes_is_a_box_where_it_can_be() -> None:
    found = Regions((2, 64, 32)).resolve((Reshape((128, 32)), Index((SliceEntry(64, 64), SliceEntry(0, 32)))), [])
    assert found.bands == (((1, 2),), ((0, 64),), ((0, 32),))
    assert found.chosen is None


def test_a_slice_of_a_slice_leaves_out_what_lies_outside_the_inner_one() -> None:
    inner, outer = Index((SliceEntry(0, 4),)), Index((SliceEntry(Operand(0), 4),))
    found = Regions((8,)).resolve((inner, outer), [np.int32(2)])
    assert found.bands == (((2, 4),),)


def test_words_of_a_buffer_of_bytes_are_runs_of_bytes() -> None:
    stack = (
        Index((SliceEntry(16, 64),)),
        Bitcast(dtypes.FLOAT32),
        Reshape((4, 4)),
        Index((Operand(0), SliceEntry(0, 4))),
    )
    found = Regions((128,), itemsize=1).resolve(stack, [np.int32(1)])
    assert found.bands == (((32, 48),),)


def test_bytes_of_words_joined_twice_are_those_of_the_buffer_in_their_order() -> None:
    wider = (Bitcast(np.dtype(np.uint16)), Bitcast(np.dtype(np.uint32)))
    stack = (*wider, Bitcast(np.dtype(np.uint8)), Index((SliceEntry(4, 2),)))
    found = Regions((16,), itemsize=1).resolve(stack, [])
    assert found.bands == (((4, 6),),)


def test_gathered_rows_are_whole_bands_however_often_each_is_named() -> None:
    stack = (Index((Operand(0), SliceEntry(4, 8))), Transpose((1, 0)))
    found = Regions((64, 32)).resolve(stack, [np.array([9, 3, 8, -1, 64, 3], np.int32)])
    assert found.bands == (((3, 4), (8, 10)), ((4, 12),))
    assert found.chosen is None


def test_shadows_of_one_shape_can_share_what_they_have_resolved() -> None:
    first = Shadow((4, 8), initialised=True)
    second = Shadow((4, 8), initialised=True, regions=first.regions)
    stack = (Index((Operand(0), SliceEntry(0, 8))),)
    place = region(first, stack, [np.int32(1)])
    assert region(second, stack, [np.int32(1)]) is place
    first.write(place, access(ME, write=True), never)
    assert second.read(place, access(YOU), never) is None


def test_a_mask_of_full_columns_needs_two_cuts() -> None:
    mask = np.arange(8) < 5
    found = Regions((4, 8)).resolve(WHOLE, [], np.broadcast_to(mask, (4, 8)))
    assert found.bands == (((0, 4),), ((0, 5),))
    assert found.chosen is None


def test_another_blocks_buffer_is_looked_at_through_the_same_transforms() -> None:
    stack = (Peer((("cluster", Operand(1)),)), Index((Operand(0),)))
    found = Regions((4,)).resolve(stack, [np.int32(2), np.int32(1)])
    assert found.bands == (((2, 3),),)


def test_a_stack_is_resolved_once_for_the_same_values_of_its_indices() -> None:
    regions, stack = Regions((4, 8)), (Index((Operand(0), SliceEntry(0, 8))),)
    first = regions.resolve(stack, [np.int32(1)])
    assert regions.resolve(stack, [np.int64(1)]) is first
    assert regions.resolve(stack, [np.int32(1)], np.ones(8, bool)) is first
    assert regions.resolve(stack, [np.int32(2)]) is not first


def test_a_part_of_a_bitcast_needs_the_item_size() -> None:
    with pytest.raises(InternalError, match="a region after a bitcast needs the size of the array's elements"):
        Regions((8,)).resolve((Bitcast(np.dtype(np.int8)), Index((0,))), [])


# Conflicts


def test_a_read_conflicts_with_an_unordered_write() -> None:
    shadow, write = Shadow((4, 8), initialised=True), access(ME, write=True)
    assert shadow.write(row(shadow, 1), write, never) is None
    assert shadow.read(row(shadow, 2), access(YOU), never) is None
    assert shadow.read(row(shadow, 1), access(YOU), always) is None
    assert shadow.read(row(shadow, 1), access(YOU), never) is write


def test_a_write_conflicts_with_an_unordered_read_and_reads_do_not_conflict() -> None:
    shadow, first = Shadow((4, 8), initialised=True), access(ME)
    assert shadow.read(row(shadow, 1), first, never) is None
    assert shadow.read(row(shadow, 1), access(YOU), never) is None
    assert shadow.write(row(shadow, 1), access(THIRD, write=True), never) is first


def test_the_caller_learns_which_access_was_earlier_and_whether_the_current_one_writes() -> None:
    shadow, calls = Shadow((4,), initialised=True), []

    def ordered(previous: Access, current_is_write: bool) -> bool:
        calls.append((previous, current_is_write))
        return True

    write, read = access(ME, write=True), access(YOU)
    whole = region(shadow, WHOLE, [])
    shadow.write(whole, write, ordered)
    shadow.read(whole, read, ordered)
    shadow.write(whole, access(THIRD, write=True), ordered)
    assert calls == [(write, False), (write, True), (read, True)]


def test_the_last_of_several_atomics_does_not_stand_for_the_others() -> None:
    shadow = Shadow((4,), initialised=True)
    whole = region(shadow, (), ())
    first, last = access(ME, write=True, atomic=True), access(YOU, write=True, atomic=True)
    shadow.write(whole, first, never)
    shadow.write(whole, last, never)
    assert shadow.read(whole, access(THIRD), lambda before, _: before is last) is first
    assert shadow.write(whole, access(THIRD, write=True), lambda before, _: before is last) is first
    assert shadow.read(whole, access(THIRD), always) is None


def test_an_atomic_stands_for_those_that_it_comes_after() -> None:
    shadow = Shadow((4,), initialised=True)
    whole = region(shadow, (), ())
    last = access(YOU, write=True, atomic=True)
    shadow.write(whole, access(ME, write=True, atomic=True), never)
    shadow.write(whole, last, always)
    assert shadow.read(whole, access(THIRD), lambda before, _: before is last) is None


def test_a_write_stays_beside_one_that_repeats_it() -> None:
    shadow = Shadow((4,), initialised=True)
    whole, half = region(shadow, (), ()), region(shadow, (Index((SliceEntry(0, 2),)),), ())
    first, other, last = access(ME, write=True), access(THIRD, write=True), access(YOU, write=True)
    shadow.write(whole, first, never)
    assert shadow.write(half, other, lambda before, _: before is first) is None
    assert shadow.write(whole, last, never, lambda before: before is first) is other
    assert shadow.read(whole, access(THIRD), lambda before, _: before is last) is None
    assert shadow.write(whole, access(THIRD, write=True), lambda before, _: before is not first) is first


def test_atomics_conflict_with_ordinary_accesses_only() -> None:
    shadow = Shadow((), initialised=True)
    whole = region(shadow, WHOLE, [])
    atomic = access(ME, write=True, atomic=True)
    assert shadow.write(whole, atomic, never) is None
    assert shadow.write(whole, access(YOU, write=True, atomic=True), never) is None
    assert shadow.read(whole, access(ME, atomic=True), never) is None
    assert shadow.read(whole, access(THIRD), never) is not None


def test_a_later_read_takes_the_place_of_an_older_one_of_its_component_and_kind_only() -> None:
    shadow = Shadow((), initialised=True)
    whole = region(shadow, WHOLE, [])
    late, asynchronous = access(ME, 2), access(ME, 3, asynchronous=True)
    for read in (access(ME, 1), late, asynchronous):
        shadow.read(whole, read, always)
    calls = []
    shadow.write(whole, access(YOU, write=True), lambda previous, _: bool(calls.append(previous)) or True)
    assert calls == [late, asynchronous]


def test_after_a_conflict_the_accesses_are_noted_all_the_same() -> None:
    shadow = Shadow((4, 8), initialised=False)
    shadow.write(row(shadow, 0), access(ME, write=True), never)
    whole, write = region(shadow, WHOLE, []), access(YOU, write=True)
    assert shadow.write(whole, write, never) is not None
    assert not shadow.uninitialised(whole)
    assert shadow.read(row(shadow, 3), access(THIRD), never) is write


def test_memory_is_uninitialised_until_every_element_is_written() -> None:
    shadow = Shadow((2, 4), initialised=False)
    whole = region(shadow, WHOLE, [])
    shadow.write(row(shadow, 0), access(ME, write=True), always)
    assert not shadow.uninitialised(row(shadow, 0))
    assert shadow.uninitialised(whole)
    shadow.read(row(shadow, 1), access(ME), always)
    assert shadow.uninitialised(row(shadow, 1))
    shadow.write(row(shadow, 1), access(ME, write=True), always)
    assert not shadow.uninitialised(whole)


def test_an_access_of_nothing_is_noted_nowhere() -> None:
    shadow = Shadow((2, 4), initialised=False)
    outside = row(shadow, 5)
    assert shadow.write(outside, access(ME, write=True), never) is None
    assert shadow.read(outside, access(YOU), never) is None
    assert not shadow.uninitialised(outside)
    assert shadow.cells == 1


def test_a_loop_over_the_same_regions_makes_no_more_cells() -> None:
    shadow = Shadow((16, 64, 64), initialised=True)
    for step in range(200):
        shadow.write(row(shadow, step % 16), access(ME, step, write=True), always)
        shadow.read(row(shadow, step % 16), access(YOU, step), always)
    assert shadow.cells == 16


# Everything at once, against one entry per element


class Dense:
    """The same rules with a dictionary for each element."""

    def __init__(self, shape: tuple[int, ...], initialised: bool) -> None:
        self.shape = shape
        self.initialised = np.full(shape, initialised)
        self.writes: dict[tuple[int, ...], Access] = {}
        self.beside: dict[tuple[int, ...], list[Access]] = {}
        self.reads: dict[tuple[int, ...], dict[tuple[Component, bool, bool], Access]] = {}

    def read(self, mask: Array, current: Access, ordered: Any) -> Access | None:
        conflicts = []
        for element in map(tuple, np.argwhere(mask)):
            earlier = self.writes.get(element)
            atomics = [each for each in self.beside.get(element, []) if each.write]
            for each in [earlier, *atomics] if earlier else []:
                if not (each.atomic and current.atomic) and not ordered(each, False):
                    conflicts.append(each)
            reads = self.reads.setdefault(element, {})
            kind = (current.component, current.asynchronous, current.atomic)
            reads.pop(kind, None)
            reads[kind] = current
        return conflicts[0] if conflicts else None

    def write(self, mask: Array, current: Access, ordered: Any) -> Access | None:
        conflicts = []
        for element in map(tuple, np.argwhere(mask)):
            write = [self.writes[element]] if element in self.writes else []
            beside = self.beside.pop(element, [])
            reads = self.reads.pop(element, {}).values()
            for earlier in (*write, *beside, *reads):
                if not (earlier.atomic and current.atomic) and not ordered(earlier, True):
                    conflicts.append(earlier)
            if current.atomic and write:
                self.beside[element] = [
                    each
                    for each in (*beside, *write, *reads)
                    if each.atomic and each.component != current.component and not ordered(each, True)
                ]
            self.writes[element] = current
            self.initialised[element] = True
        return conflicts[0] if conflicts else None


@pytest.mark.parametrize("seed", range(60))
def test_conflicts_and_verdicts_are_those_of_a_shadow_of_every_element(seed: int) -> None:
    chance = random.Random(seed)
    shape = chance.choice(SHAPES)
    root = ArrayType(shape, chance.choice(DTYPES))
    initialised = chance.random() < 0.3
    shadow, dense = Shadow(shape, initialised, root.dtype.itemsize), Dense(shape, initialised)
    stacks = [Stack(chance, root, chance.randrange(4)) for _ in range(6)]
    for step in range(60):
        stack = chance.choice(stacks)
        mask = stack.mask() if chance.random() < 0.1 else None
        place, elements = region(shadow, stack.transforms, stack.indices, mask), stack.reached(mask)
        kinds = {"atomic": chance.random() < 0.2, "asynchronous": chance.random() < 0.3}
        component = chance.choice([ME, YOU, THIRD])
        late = chance.choice([0, step, step // 2])

        def ordered(previous: Access, _: bool, late: int = late, component: Component = component) -> bool:
            return previous.epoch <= late or previous.component == component

        assert shadow.uninitialised(place) == bool(np.any(elements & ~dense.initialised))
        match chance.choice(["read", "write"]):
            case "read":
                current = access(component, step, **kinds)
                assert shadow.read(place, current, ordered) is dense.read(elements, current, ordered)
            case "write":
                current = access(component, step, write=True, **kinds)
                assert shadow.write(place, current, ordered) is dense.write(elements, current, ordered)
