"""What a wait for a semaphore learns: the signals without which it could not have returned."""

from __future__ import annotations

import pytest

from palladio.machine.check.order.async_ops import PENDING
from palladio.machine.check.order.signals import Signals
from palladio.machine.check.shadow import Access
from palladio.machine.run.clocks import Clock, Component, ComponentTable

TABLE = ComponentTable(0)
ONE, TWO, WAITING, OTHER = (TABLE.new(name) for name in ("one", "two", "waiting", "other"))
COPIES = ComponentTable(-1).new("copies")


def clock(**epochs: int) -> Clock:
    """A clock at these epochs."""
    components = {"one": ONE, "two": TWO, "waiting": WAITING, "other": OTHER}
    found = TABLE.clock()
    for name, epoch in epochs.items():
        found.set(components[name], epoch)
    return found


def signalled(signals: Signals, component: Component, epoch: int, amount: int = 1, **before: int) -> None:
    """A signal by a component at an epoch, which knows this much of others."""
    own = clock(**before)
    own.set(component, epoch)
    signals.add(amount, (own, own.copy()), component, epoch)


def copied(signals: Signals, amount: int = 1) -> Access:
    """A copy that starts, and its access."""
    access = Access(COPIES, PENDING, None, "a thread", write=True, asynchronous=True)
    signals.add_copy(amount, (clock(), clock()), COPIES, [access])
    return access


def acquired(signals: Signals, amount: int, **waiting: int) -> Clock:
    """What a wait learns."""
    return signals.acquired(amount, clock(**waiting))[0].copy()


def test_the_only_signal_is_heard() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    assert acquired(signals, 1).covers(ONE, 1)


def test_of_two_signals_a_wait_for_one_hears_neither() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    signalled(signals, TWO, 1)
    known = acquired(signals, 1)
    assert not known.covers(ONE, 1)
    assert not known.covers(TWO, 1)


def test_a_wait_for_two_hears_both() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    signalled(signals, TWO, 1)
    known = acquired(signals, 2)
    assert known.covers(ONE, 1)
    assert known.covers(TWO, 1)


def test_of_two_signals_of_one_thread_the_first_is_heard() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    signalled(signals, ONE, 2)
    known = acquired(signals, 1)
    assert known.covers(ONE, 1)
    assert not known.covers(ONE, 2)


def test_a_signal_that_comes_after_another_needs_it() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    signalled(signals, TWO, 1, one=1)
    known = acquired(signals, 1)
    assert known.covers(ONE, 1)
    assert not known.covers(TWO, 1)


def test_what_was_taken_before_is_needed_too() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    signalled(signals, TWO, 1)
    signals.taken(1, WAITING, 1)
    known = acquired(signals, 1, waiting=1)
    assert known.covers(ONE, 1)
    assert known.covers(TWO, 1)


def test_what_another_thread_took_in_no_order_is_not() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    signalled(signals, TWO, 1)
    signals.taken(1, OTHER, 1)
    assert not acquired(signals, 1).covers(ONE, 1)


def test_whoever_gives_back_what_it_took_is_heard_by_the_next() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)  # the token
    signals.taken(1, OTHER, 1)
    signalled(signals, OTHER, 2, one=1)
    assert acquired(signals, 1).covers(OTHER, 2)


def test_whoever_gives_without_having_taken_is_not() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    signalled(signals, OTHER, 2, one=1)
    assert not acquired(signals, 1).covers(OTHER, 2)


def test_of_two_tokens_neither_holder_is_heard() -> None:
    signals = Signals()
    signalled(signals, ONE, 1, amount=2)
    for holder, epoch in ((TWO, 1), (OTHER, 1)):
        signals.taken(1, holder, epoch)
        signalled(signals, holder, epoch + 1, one=1)
    known = acquired(signals, 1)
    assert known.covers(ONE, 1)
    assert not known.covers(TWO, 2)
    assert not known.covers(OTHER, 2)


def test_a_large_signal_is_needed_where_small_ones_do_not_do() -> None:
    signals = Signals()
    signalled(signals, ONE, 1, amount=4)
    signalled(signals, TWO, 1, amount=1)
    known = acquired(signals, 3)
    assert known.covers(ONE, 1)
    assert not known.covers(TWO, 1)


def test_what_one_wait_has_heard_later_ones_know() -> None:
    signals = Signals()
    signalled(signals, ONE, 1)
    acquired(signals, 1)
    signalled(signals, TWO, 1)
    assert acquired(signals, 1).covers(ONE, 1)


def test_the_only_copy_is_heard() -> None:
    signals = Signals()
    copy = copied(signals)
    known = acquired(signals, 1)
    assert known.covers(COPIES, copy.epoch)


def test_of_two_copies_a_wait_for_one_hears_neither() -> None:
    signals = Signals()
    copies = [copied(signals), copied(signals)]
    assert [acquired(signals, 1).covers(COPIES, copy.epoch) for copy in copies] == [False, False]


def test_a_copy_that_starts_later_does_not_matter() -> None:
    signals = Signals()
    first = copied(signals)
    acquired(signals, 1)
    signals.taken(1, WAITING, 1)
    second = copied(signals)
    known = acquired(signals, 1)
    assert known.covers(COPIES, first.epoch)
    assert not known.covers(COPIES, second.epoch)
    assert acquired(signals, 1, waiting=1).covers(COPIES, second.epoch)


def test_of_a_hundred_threads_that_signal_a_wait_for_all_but_one_hears_none() -> None:
    signals, table = Signals(), ComponentTable(0)
    components = [table.new(str(number)) for number in range(100)]
    for component in components:
        own = table.clock()
        own.set(component, 1)
        signals.add(1, (own, own.copy()), component, 1)
    known = signals.acquired(99, table.clock())[0]
    assert not any(known.covers(component, 1) for component in components)
    known = signals.acquired(100, table.clock())[0]
    assert all(known.covers(component, 1) for component in components)


def test_of_many_signals_of_two_threads_those_are_heard_that_are_needed() -> None:
    signals = Signals()
    for epoch in range(1, 151):
        signalled(signals, ONE, epoch)
        signalled(signals, TWO, epoch)
    known = acquired(signals, 200)
    assert known.epoch(ONE) == known.epoch(TWO) == 50, "the other thread has 150, so 50 are needed of each"


def test_the_signals_kept_apart_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palladio.machine.check.order.signals._MOST_OPEN", 8)
    signals = Signals()
    for epoch in range(1, 20):
        signalled(signals, ONE if epoch % 2 else TWO, epoch)
    assert len(signals._open) <= 8
    assert acquired(signals, 1).covers(ONE, 1)
