"""Tokens go to their likeliest experts, sorted, and come back to their places."""

import numpy as np
import pytest

from palladio.demo.kernels import FORWARD, ROW_GRADIENT, WEIGHT_GRADIENT, ExpertProducts
from palladio.demo.model import combine, dispatch, route, run_experts, unsort

TOKENS, WIDTH, EXPERTS = 37, 6, 8


@pytest.fixture
def tokens():
    return np.random.default_rng(1).standard_normal((TOKENS, WIDTH)).astype(np.float32)


@pytest.fixture
def routing(tokens):
    router = np.random.default_rng(2).standard_normal((WIDTH, EXPERTS)).astype(np.float32)
    return route(tokens, router)[0]


def test_group_sizes_count_every_row_once(routing):
    assert routing.group_sizes.dtype == np.int32
    assert routing.group_sizes.shape == (EXPERTS,)
    assert routing.group_sizes.sum() == TOKENS * 2


def test_a_token_goes_to_its_two_likeliest_experts(routing):
    expected = np.sort(np.argsort(routing.probabilities, axis=1)[:, -2:], axis=1)
    np.testing.assert_array_equal(np.sort(routing.chosen, axis=1), expected)


def test_gates_of_a_token_sum_to_one_and_fall(routing):
    np.testing.assert_allclose(routing.gates.sum(axis=1), 1, rtol=1e-6)
    assert (routing.gates[:, 0] >= routing.gates[:, 1]).all()


def test_rows_are_sorted_by_expert(routing):
    experts = routing.chosen.reshape(-1)[routing.order]
    np.testing.assert_array_equal(experts, np.repeat(np.arange(EXPERTS), routing.group_sizes))


def test_rows_of_one_expert_keep_the_order_of_their_tokens(routing):
    starts = np.cumsum(routing.group_sizes)[:-1]
    for group in np.split(routing.order // 2, starts):
        assert (np.diff(group) > 0).all()


def test_unsort_undoes_the_sorting(routing):
    values = np.arange(TOKENS * 2 * 3).reshape(-1, 3)
    np.testing.assert_array_equal(unsort(values[routing.order], routing), values)


def test_combine_of_dispatched_tokens_is_the_tokens(tokens, routing):
    rows, _ = dispatch(tokens, routing)
    np.testing.assert_allclose(combine(rows, routing)[0], tokens, rtol=1e-5)


def test_each_row_meets_the_weights_of_its_own_expert(tokens, routing):
    rows, _ = dispatch(tokens, routing)
    up = np.random.default_rng(3).standard_normal((EXPERTS, WIDTH, 5)).astype(np.float32)
    down = np.random.default_rng(4).standard_normal((EXPERTS, 5, WIDTH)).astype(np.float32)
    out, _ = run_experts(rows, up, down, routing.group_sizes, ExpertProducts())
    experts = routing.chosen.reshape(-1)[routing.order]
    one_by_one = [np.maximum(row @ up[expert], 0) @ down[expert] for row, expert in zip(rows, experts)]
    np.testing.assert_allclose(out, one_by_one, rtol=1e-4, atol=1e-4)


def test_the_account_counts_the_operations_of_real_rows():
    products = ExpertProducts()
    rows, weights = np.ones((10, 3), np.float32), np.ones((2, 3, 5), np.float32)
    out, pullback = products(rows, weights, np.array([4, 6], np.int32))
    pullback(np.ones_like(out))
    assert {use: (cost.calls, cost.operations) for use, cost in products.costs.items()} == {
        FORWARD: (1, 2 * 10 * 3 * 5),
        ROW_GRADIENT: (1, 2 * 10 * 3 * 5),
        WEIGHT_GRADIENT: (1, 2 * 10 * 3 * 5),
    }
    assert products.total.calls == 3
