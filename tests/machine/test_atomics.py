"""The order that atomics make: each element has clocks of its own, up to a bound."""

from __future__ import annotations

from palladio.machine.check.order.atomics import MOST_APART, MOST_AT_ONCE, AtomicClocks
from palladio.machine.check.regions import Region, Regions
from palladio.machine.run.clocks import Clock, Component, ComponentTable
from palladio.types.transforms import Index, SliceEntry

SHAPE = (2 * MOST_APART,)
REGIONS = Regions(SHAPE)


def part(first: int, count: int = 1) -> Region:
    """The elements from a first one on."""
    return REGIONS.resolve((Index((SliceEntry(first, count, 1),)),), ())


class Threads:
    """Threads that each take a step and then make an atomic."""

    def __init__(self, count: int) -> None:
        self.table = ComponentTable(0)
        self.components: list[Component] = [self.table.new(f"wg {n}") for n in range(count)]
        self.clocks = [(self.table.clock(), self.table.clock()) for _ in range(count)]

    def makes(self, number: int, atomics: AtomicClocks, region: Region, learns: bool = True) -> None:
        for clock in self.clocks[number]:
            clock.advance(self.components[number])
        atomics.exchange(region, self.clocks[number], learns)

    def knows(self, number: int, other: int) -> bool:
        """True if what the other did before its atomics happened before this thread's next step."""
        clock: Clock = self.clocks[number][0]
        return clock.covers(self.components[other], 1)


def test_atomics_of_one_element_are_ordered_and_those_of_two_are_not() -> None:
    threads, atomics = Threads(3), AtomicClocks(SHAPE)
    threads.makes(0, atomics, part(3))
    threads.makes(1, atomics, part(4))
    threads.makes(2, atomics, part(3))
    assert not threads.knows(1, 0)
    assert threads.knows(2, 0) and not threads.knows(2, 1)


def test_one_whose_result_is_unused_only_releases() -> None:
    threads, atomics = Threads(3), AtomicClocks(SHAPE)
    threads.makes(0, atomics, part(3))
    threads.makes(1, atomics, part(3), learns=False)
    threads.makes(2, atomics, part(3))
    assert not threads.knows(1, 0)
    assert threads.knows(2, 0) and threads.knows(2, 1)


def test_some_elements_at_once_are_each_of_their_own_and_many_are_the_whole_buffer() -> None:
    for count, whole in ((MOST_AT_ONCE, False), (MOST_AT_ONCE + 1, True)):
        threads, atomics = Threads(2), AtomicClocks(SHAPE)
        threads.makes(0, atomics, part(0, count))
        threads.makes(1, atomics, part(count))
        assert threads.knows(1, 0) == whole


def test_the_elements_with_clocks_of_their_own_are_bounded_and_the_others_share_theirs() -> None:
    threads, atomics = Threads(5), AtomicClocks(SHAPE)
    for element in range(MOST_APART):
        threads.makes(0, atomics, part(element))
    threads.makes(1, atomics, part(MOST_APART))
    threads.makes(2, atomics, part(MOST_APART + 1))
    assert threads.knows(2, 1) and not threads.knows(2, 0)
    threads.makes(3, atomics, part(MOST_APART - 1))
    assert threads.knows(3, 0)
