"""Vector clocks, against a model that keeps one dictionary of every actor's epoch."""

from __future__ import annotations

import random

import pytest

from palladio.machine.run.clocks import Actor, ActorTable, Clock


def test_a_table_numbers_its_actors_and_keeps_their_labels() -> None:
    table = ActorTable(3)
    first, second = table.new("warpgroup 0"), table.new("warpgroup 0, wgmma")
    assert (first, second) == (Actor(3, 0), Actor(3, 1))
    assert table.label(second) == "warpgroup 0, wgmma"
    assert len(table) == 2


def test_a_new_clock_has_seen_only_the_beginning() -> None:
    clock = ActorTable(0).clock()
    for actor in (Actor(0, 0), Actor(0, 1000), Actor(7, 0)):
        assert clock.covers(actor, 0)
        assert not clock.covers(actor, 1)
        assert clock.epoch(actor) == 0


def test_a_step_is_covered_from_then_on_and_the_next_is_not() -> None:
    clock, me = Clock(0), Actor(0, 2)
    assert [clock.advance(me), clock.advance(me)] == [1, 2]
    assert clock.covers(me, 1)
    assert clock.covers(me, 2)
    assert not clock.covers(me, 3)


def test_an_actor_made_after_the_clock_can_step() -> None:
    table = ActorTable(0)
    clock = table.clock()
    actors = [table.new(str(n)) for n in range(100)]
    assert clock.advance(actors[-1]) == 1
    assert clock.covers(actors[-1], 1)
    assert not clock.covers(actors[-2], 1)


def test_a_copy_goes_its_own_way() -> None:
    near, far = Actor(0, 0), Actor(1, 0)
    clock = Clock(0)
    clock.set(far, 4)
    twin = clock.copy()
    clock.advance(near)
    clock.advance(far)
    assert not twin.covers(near, 1)
    assert not twin.covers(far, 5)
    assert twin.covers(far, 4)


def test_a_clock_never_goes_back() -> None:
    for actor in (Actor(0, 0), Actor(1, 0)):
        clock = Clock(0)
        clock.set(actor, 5)
        clock.set(actor, 3)
        assert clock.epoch(actor) == 5


def test_a_join_leaves_the_other_clock_alone() -> None:
    mine, other = Clock(0), Clock(1)
    other.advance(Actor(1, 0))
    mine.join(other)
    other.advance(Actor(1, 0))
    mine.set(Actor(1, 1), 9)
    assert mine.epoch(Actor(1, 0)) == 1
    assert other.epoch(Actor(1, 1)) == 0


def test_clocks_that_have_met_share_what_they_know_of_other_clusters() -> None:
    meeting = Clock(0)
    meeting.set(Actor(9, 3), 2)
    first, second = Clock(1), Clock(2)
    first.set(Actor(9, 0), 1)
    meeting.join(first)
    for clock in (first, second):
        clock.join(meeting)
    assert first.foreign[9] is second.foreign[9] is meeting.foreign[9]


def test_a_clock_names_each_actor_with_its_cluster_and_epoch() -> None:
    clock = Clock(0)
    clock.set(Actor(0, 1), 2)
    clock.set(Actor(5, 0), 7)
    assert str(clock) == "<0.1:2 5.0:7>"


@pytest.mark.parametrize("seed", range(20))
def test_clocks_agree_with_a_dictionary_of_epochs(seed: int) -> None:
    chance = random.Random(seed)
    clusters = [0, 0, 1, 2]
    clocks = [Clock(cluster) for cluster in clusters]
    models: list[dict[Actor, int]] = [{} for _ in clusters]

    def some_actor(clusters: list[int]) -> Actor:
        return Actor(chance.choice(clusters), chance.choice([0, 1, 2, 17, 40]))

    for _ in range(150):
        which, other = chance.randrange(4), chance.randrange(4)
        clock, model = clocks[which], models[which]
        match chance.randrange(4):
            case 0:
                actor = some_actor([0, 1, 2])
                model[actor] = model.get(actor, 0) + 1
                assert clock.advance(actor) == model[actor]
            case 1:
                actor, epoch = some_actor([0, 1, 2]), chance.randrange(10)
                clock.set(actor, epoch)
                model[actor] = max(model.get(actor, 0), epoch)
            case 2:
                clock.join(clocks[other])
                for actor, epoch in models[other].items():
                    model[actor] = max(model.get(actor, 0), epoch)
            case 3 if clusters[which] == clusters[other]:
                clocks[other], models[other] = clock.copy(), model.copy()
        for clock, model in zip(clocks, models, strict=True):
            actor = some_actor([0, 1, 2])
            assert clock.epoch(actor) == model.get(actor, 0)
            assert clock.covers(actor, model.get(actor, 0))
            assert not clock.covers(actor, model.get(actor, 0) + 1)
