"""`hopper.moe_mlp`, beside the same layer in float64 NumPy, token by token."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.base.errors import PalladioError
from palladio.hopper.compile import compiled
from palladio.hopper.inspect import disassembled, instructions
from palladio.hopper.twin.run import SCHEDULES, TwinError, run
from palladio.library import hopper
from palladio.library.hopper import MatmulConfig
from palladio.library.hopper.experts.routing import route
from tests.hopper.kernels import BF16, F32, error, kernel, lowered, on_twin
from tests.hopper.kernels import normal as narrow
from tests.library.references import assert_close, normal
from tests.library.test_experts import assert_gradients, gradients, reference

T, H, INNER, E, K = 5, 12, 8, 3, 2
IDS = np.int32([[0, 2], [-1, 2], [2, 0], [E, 2], [0, 0]])
WEIGHTS = np.random.default_rng(0).random((T, K)).astype(np.float32)
TOKENS = normal(1, T, H)
SMALL = MatmulConfig(tile_m=4, tile_n=8, tile_k=8, stages=2, blocks=2)


def layer(activation: str) -> list[np.ndarray]:
    """The matrices and the biases."""
    wide = INNER if activation == "relu" else 2 * INNER
    return [normal(2, E, H, wide), normal(3, E, INNER, H), normal(4, E, wide), normal(5, E, H)]


def test_each_token_goes_through_its_experts_in_every_schedule() -> None:
    up, down, up_bias, down_bias = layer("swiglu")
    out = np.full((T, H), np.nan, np.float32)
    biases = {"gate_up_bias": up_bias, "down_bias": down_bias}
    expected = reference(TOKENS, IDS, WEIGHTS, up, down, "swiglu", up_bias, down_bias)

    def run() -> None:
        assert hopper.moe_mlp(TOKENS, IDS, WEIGHTS, up, down, config=SMALL, out=out, **biases) is out
        assert_close(out, expected)

    report = pl.check(run, schedules=3)
    assert report.ok, report.render()


@pytest.mark.parametrize("transposed", [True, False])
def test_gates_may_alternate_with_the_other_columns(transposed: bool) -> None:
    up, down, up_bias, _ = layer("gpt_oss")
    given = (up.swapaxes(1, 2), down.swapaxes(1, 2)) if transposed else (up, down)
    options = {"activation": "gpt_oss", "transposed": transposed, "gate_up_bias": up_bias, "config": SMALL}
    found = pl.jit(lambda ids: hopper.moe_mlp(TOKENS, ids, WEIGHTS, *given, **options))(IDS)
    assert_close(found, reference(TOKENS, IDS, WEIGHTS, up, down, "gpt_oss", up_bias))


@pytest.mark.parametrize("activation", ["swiglu", "gpt_oss", "relu"])
def test_gradients_in_every_schedule(activation: str) -> None:
    up, down, up_bias, down_bias = (each.astype(BF16) for each in layer(activation))
    biases = {"gate_up_bias": up_bias, "down_bias": down_bias}
    given = TOKENS.astype(BF16), IDS, WEIGHTS, up, down
    grad = normal(6, T, H).astype(BF16)

    expected = gradients(grad, *given, activation, up_bias, down_bias)

    def run() -> None:
        out, pullback = hopper.moe_mlp_vjp(*given, activation=activation, **biases)
        assert_close(out, reference(*given, activation, up_bias, down_bias), 1e-2)
        assert_gradients(pullback(grad), expected, 1e-2)

    report = pl.check(run, schedules=2)
    assert report.ok, report.render()


def test_only_gradients_that_are_wanted_are_computed() -> None:
    given = TOKENS.astype(BF16), IDS, WEIGHTS, *(each.astype(BF16) for each in layer("swiglu")[:2])
    call = hopper.LayerCall(*given, None, None, "swiglu", False, None)
    _, inputs = call.forward()
    found = call.gradients(normal(6, T, H).astype(BF16), inputs, (False, True, False, False, True, False))
    assert [each is not None for each in found] == [False, True, False, False, False, False]
    assert found.expert_weights.shape == (T, K)


def test_warpgroups_share_the_assignments() -> None:
    ids, each = np.random.default_rng(1).integers(-1, E + 1, 1200), 4
    sizes, token_of, row_of = map(np.asarray, route(1200, each, E, None)(ids))
    order = np.concatenate([np.flatnonzero(ids == expert) for expert in range(E)])
    np.testing.assert_array_equal(sizes, np.bincount(ids[order], minlength=E))
    np.testing.assert_array_equal(token_of[: len(order)], order // each)
    np.testing.assert_array_equal(row_of[order], np.arange(len(order)))


def test_nothing_is_added_where_there_are_no_experts() -> None:
    up, down, *_ = layer("relu")
    found = hopper.moe_mlp(TOKENS, IDS[:, :0], WEIGHTS[:, :0], up, down, activation="relu")
    np.testing.assert_array_equal(found, np.zeros((T, H), np.float32))


def refused(*arrays: Any, **options: Any) -> list[str]:
    with pytest.raises(PalladioError) as caught:
        hopper.moe_mlp(*arrays, **options)
    return [line.strip() for line in str(caught.value).splitlines()]


def test_ids_are_of_32_or_64_bits() -> None:
    up, down, *_ = layer("swiglu")
    assert refused(TOKENS, IDS.astype(np.int16), WEIGHTS, up, down)[:3] == [
        "expert_ids: ids on Hopper are of 32 or 64 bits",
        "expected: int32 or int64",
        "got:      int16",
    ]


def test_a_warpgroup_has_the_gates_and_the_others_of_its_rows() -> None:
    up, down, *_ = layer("swiglu")
    config = MatmulConfig(tile_m=4, tile_n=8, tile_k=8, stages=2, split="n")
    assert refused(TOKENS, IDS, WEIGHTS, up, down, config=config)[:3] == [
        "config: each warpgroup has the gates and the others of its rows",
        'expected: split="m" and an even tile_n',
        'got:      split="n" and tile_n=8',
    ]


# Rows that are copied to where they are needed.

ROWS = np.int32([5, 299, 0, 5] * 32)


def rows_of(columns: int, first: int = 0) -> Any:
    """A kernel that multiplies some rows of `x`, from a column on, with a matrix."""

    def body(rows: Any, x: Any, y: Any, out: Any, left: Any, right: Any, acc: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[rows[...], pl.ds(first, columns)], left, full)
        plgpu.copy_gmem_to_smem(y, right, full)
        plgpu.barrier_wait(full)
        plgpu.wgmma(acc, left, right)
        plgpu.wgmma_wait(0)
        out[...] = acc[...]

    buffers = [plgpu.SMEM((128, columns), BF16), plgpu.SMEM((columns, 64), BF16), plgpu.ACC((128, 64))]
    return kernel(body, (128, 64), F32, [*buffers, plgpu.Barrier(num_arrivals=2)])


@pytest.mark.parametrize(("columns", "first", "width"), [(64, 64, 128), (32, 0, 100)], ids=["pieces", "elements"])
def test_rows_arrive_where_they_are_needed(columns: int, first: int, width: int) -> None:
    x, y = narrow(300, width), narrow(columns, 64)
    wanted = np.zeros((128, columns))
    part = x[ROWS, first : first + columns].astype(np.float64)
    wanted[:, : part.shape[1]] = part
    for found in on_twin(rows_of(columns, first), ROWS, x, y):
        assert error(found, wanted @ y.astype(np.float64)) < 1e-6


def test_the_threads_copy_rows_in_pieces_of_16_bytes() -> None:
    made = lowered(rows_of(64), ROWS, narrow(300, 64), narrow(64, 64))
    found = instructions(disassembled(compiled(made).code))
    assert found["LDGSTS.E.BYPASS.128"] == 8 and sum("ARRIVES.LDGSTSBAR" in each for each in found) == 1
    assert compiled(made).stack == 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    pal::fence_async();\n", "", "stored without a fence.proxy.async after it"),
        ("pal::copy_async_hold", "// pal::copy_async_hold", "asynchronous operation in flight still writes"),
    ],
)
def test_the_twin_sees_rows_that_are_read_too_early(old: str, new: str, says: str) -> None:
    inputs = ROWS, narrow(300, 64), narrow(64, 64)
    made = lowered(rows_of(64), *inputs)
    assert made.text.count(old) == 1
    with pytest.raises(TwinError, match=says):
        run(dataclasses.replace(made, text=made.text.replace(old, new)), list(inputs), SCHEDULES[0])


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (
            lambda x, rows: x.at[pl.ds(0, 128)].at[rows, rows],
            [
                "a copy by indices takes rows of a whole array, by one vector of them",
                "expected: ref.at[rows, columns], rows: i32[n]",
                "hint:     take parts of the array along other axes in the same index",
            ],
        ),
        (
            lambda x, rows: x.at[pl.ds(8, 128), 0].at[rows],
            ["a copy by indices takes rows of a whole array", "hint:     add the start to the indices"],
        ),
    ],
    ids=["both axes", "a part"],
)
def test_what_is_not_rows_of_an_array_is_refused(part: Any, says: list[str]) -> None:
    def body(rows: Any, x: Any, out: Any, held: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(part(x, rows[...]), held, full)
        plgpu.barrier_wait(full)
        out[...] = held[...]

    made = kernel(body, (128,), F32, [plgpu.SMEM((128,), F32), plgpu.Barrier()])
    with pytest.raises(PalladioError) as caught:
        lowered(made, ROWS, narrow(300, 300, dtype=F32))
    assert [line.strip() for line in str(caught.value).splitlines()][: len(says)] == says
