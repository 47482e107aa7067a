"""`make_group_metadata`: the group and the tile of rows of each step."""

from __future__ import annotations

import importlib

import jax.numpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio as pl
from palladio.library import make_group_metadata


def steps_by_hand(sizes, m, tm, start, count, empty):
    """Every (group, tile) that shares a row; an empty group, if visited, has one tile."""
    steps, row = [], 0
    for group, size in enumerate(sizes):
        tiles = sorted({r // tm for r in range(row, row + size)})
        if size == 0 and empty:
            tiles = [min(row // tm, pl.cdiv(m, tm) - 1)]
        if start <= group < start + count:
            steps += [(group, tile) for tile in tiles]
        row += size
    return steps


def found_steps(metadata):
    (offsets, groups, tiles), count = metadata
    return list(zip(groups[:count].tolist(), tiles[:count].tolist()))


def test_steps_of_more_groups_than_are_compared_with_every_step():
    sizes = np.random.default_rng(0).integers(0, 4, 800).astype(np.int32)
    metadata = make_group_metadata(group_sizes=sizes, m=int(sizes.sum()), tm=7, visit_empty_groups=False)
    assert found_steps(metadata) == steps_by_hand(sizes.tolist(), int(sizes.sum()), 7, 0, 800, False)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=7),
    st.integers(0, 9),
    st.integers(1, 12),
    st.booleans(),
    st.data(),
)
def test_the_steps_are_those_counted_by_hand(sizes, rest, tm, empty, data):
    m = max(sum(sizes) + rest, 1)
    start = data.draw(st.integers(0, len(sizes) - 1))
    count = data.draw(st.integers(0, len(sizes) - start))
    metadata = make_group_metadata(
        group_sizes=np.array(sizes, np.int32),
        m=m,
        tm=tm,
        start_group=start,
        num_nonzero_groups=count,
        visit_empty_groups=empty,
    )
    (offsets, groups, tiles), _ = metadata
    assert found_steps(metadata) == steps_by_hand(sizes, m, tm, start, count, empty)
    assert offsets.tolist() == [0, *np.cumsum(sizes).tolist()]
    assert groups.shape == tiles.shape == (pl.cdiv(m, tm) + len(sizes) - 1,)
    assert (tiles >= 0).all() and (tiles < pl.cdiv(m, tm)).all()


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("sizes", [[8, 8, 8, 8], [5, 0, 20, 7], [0, 0, 31, 1], [1, 2, 28, 1], [0, 12, 0, 20]], ids=str)
def test_the_steps_are_those_of_jax(sizes, start, empty):
    theirs = importlib.import_module("jax.experimental.pallas.ops.tpu.megablox.gmm").make_group_metadata
    options = {"m": 32, "tm": 8, "num_nonzero_groups": 4 - start, "visit_empty_groups": empty}
    expected = theirs(group_sizes=jax.numpy.array(sizes, "int32"), start_group=jax.numpy.int32(start), **options)
    found = make_group_metadata(group_sizes=np.array(sizes, np.int32), start_group=start, **options)
    assert found_steps(found) == [(int(g), int(t)) for g, t in found_steps(expected)]
    np.testing.assert_array_equal(found[0][0], expected[0][0])


def test_all_groups_are_visited_by_default_empty_ones_too():
    assert found_steps(make_group_metadata(group_sizes=[3, 0, 5], m=8, tm=4)) == [(0, 0), (1, 0), (2, 0), (2, 1)]


def test_everything_is_int32_whatever_the_sizes_are():
    metadata, count = make_group_metadata(group_sizes=np.array([3, 5], np.int64), m=8, tm=4)
    assert {array.dtype for array in (*metadata, np.asarray(count))} == {np.dtype(np.int32)}


def test_inside_jit_the_sizes_are_traced():
    metadata = pl.jit(lambda sizes: make_group_metadata(group_sizes=sizes, m=10, tm=4))
    for sizes in ([3, 0, 5], [0, 0, 10]):
        expected = steps_by_hand(sizes, 10, 4, 0, 3, True)
        assert found_steps(metadata(np.array(sizes, np.int32))) == expected
