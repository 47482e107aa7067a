"""Vector clocks, against a model that keeps one dictionary of every component's epoch."""

from __future__ import annotations

import random

import pytest

from palladio.machine.run.clocks import Clock, Component, ComponentTable


def test_a_table_numbers_its_components_and_keeps_their_labels() -> None:
    table = ComponentTable(3)
    first, second = table.new("warpgroup 0"), table.new("warpgroup 0, wgmma")
    assert (first, second) == (Component(3, 0), Component(3, 1))
    assert table.label(second) == "warpgroup 0, wgmma"
    assert len(table) == 2


def test_a_new_clock_has_seen_only_the_beginning() -> None:
    clock = ComponentTable(0).clock()
    for component in (Component(0, 0), Component(0, 1000), Component(7, 0)):
        assert clock.covers(component, 0)
        assert not clock.covers(component, 1)
        assert clock.epoch(component) == 0


def test_a_step_is_covered_from_then_on_and_the_next_is_not() -> None:
    clock, me = Clock(0), Component(0, 2)
    assert [clock.advance(me), clock.advance(me)] == [1, 2]
    assert clock.covers(me, 1)
    assert clock.covers(me, 2)
    assert not clock.covers(me, 3)


def test_an_component_made_after_the_clock_can_step() -> None:
    table = ComponentTable(0)
    clock = table.clock()
    components = [table.new(str(n)) for n in range(100)]
    assert clock.advance(components[-1]) == 1
    assert clock.covers(components[-1], 1)
    assert not clock.covers(components[-2], 1)


def test_a_copy_goes_its_own_way() -> None:
    near, far = Component(0, 0), Component(1, 0)
    clock = Clock(0)
    clock.set(far, 4)
    twin = clock.copy()
    clock.advance(near)
    clock.advance(far)
    assert not twin.covers(near, 1)
    assert not twin.covers(far, 5)
    assert twin.covers(far, 4)


def test_a_clock_never_goes_back() -> None:
    for component in (Component(0, 0), Component(1, 0)):
        clock = Clock(0)
        clock.set(component, 5)
        clock.set(component, 3)
        assert clock.epoch(component) == 5


def test_a_join_leaves_the_other_clock_alone() -> None:
    mine, other = Clock(0), Clock(1)
    other.advance(Component(1, 0))
    mine.join(other)
    other.advance(Component(1, 0))
    mine.set(Component(1, 1), 9)
    assert mine.epoch(Component(1, 0)) == 1
    assert other.epoch(Component(1, 1)) == 0


def test_clocks_that_have_met_share_what_they_know_of_other_clusters() -> None:
    meeting = Clock(0)
    meeting.set(Component(9, 3), 2)
    first, second = Clock(1), Clock(2)
    first.set(Component(9, 0), 1)
    meeting.join(first)
    for clock in (first, second):
        clock.join(meeting)
    assert first.foreign[9] is second.foreign[9] is meeting.foreign[9]


def test_a_clock_names_each_component_with_its_cluster_and_epoch() -> None:
    clock = Clock(0)
    clock.set(Component(0, 1), 2)
    clock.set(Component(5, 0), 7)
    assert str(clock) == "<0.1:2 5.0:7>"


@pytest.mark.parametrize("seed", range(20))
def test_clocks_agree_with_a_dictionary_of_epochs(seed: int) -> None:
    chance = random.Random(seed)
    clusters = [0, 0, 1, 2]
    clocks = [Clock(cluster) for cluster in clusters]
    models: list[dict[Component, int]] = [{} for _ in clusters]

    def some_component(clusters: list[int]) -> Component:
        return Component(chance.choice(clusters), chance.choice([0, 1, 2, 17, 40]))

    for _ in range(150):
        which, other = chance.randrange(4), chance.randrange(4)
        clock, model = clocks[which], models[which]
        match chance.randrange(4):
            case 0:
                component = some_component([0, 1, 2])
                model[component] = model.get(component, 0) + 1
                assert clock.advance(component) == model[component]
            case 1:
                component, epoch = some_component([0, 1, 2]), chance.randrange(10)
                clock.set(component, epoch)
                model[component] = max(model.get(component, 0), epoch)
            case 2:
                clock.join(clocks[other])
                for component, epoch in models[other].items():
                    model[component] = max(model.get(component, 0), epoch)
            case 3 if clusters[which] == clusters[other]:
                clocks[other], models[other] = clock.copy(), model.copy()
        for clock, model in zip(clocks, models, strict=True):
            component = some_component([0, 1, 2])
            assert clock.epoch(component) == model.get(component, 0)
            assert clock.covers(component, model.get(component, 0))
            assert not clock.covers(component, model.get(component, 0) + 1)
