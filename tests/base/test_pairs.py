"""`every_pair`, which chooses the parameters of other tests."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.pairs import every_pair


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 4, 5), (3, 3, 3, 2), (2, 9), (1, 3, 2)], ids=str)
def test_any_two_values_of_different_axes_occur_together(sizes: tuple[int, ...]) -> None:
    axes = [[f"{axis} {place}" for place in range(size)] for axis, size in enumerate(sizes)]
    chosen = every_pair(*axes)
    assert len(set(chosen)) == len(chosen)
    for (first, left), (second, right) in combinations(enumerate(axes), 2):
        assert {(row[first], row[second]) for row in chosen} == set(product(left, right))


def test_three_axes_of_four_values_need_a_quarter_of_their_combinations() -> None:
    assert len(every_pair(range(4), range(4), range(4))) == 16


def test_values_occur_equally_often() -> None:
    chosen = every_pair(range(10), range(4), "ab")
    assert len(chosen) == 40
    assert [sum(row[2] == value for row in chosen) for value in "ab"] == [20, 20]
