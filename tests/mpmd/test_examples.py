"""The examples of docs/mpmd.md: their values, what the checker says of them, and how they overlap in model time.

`pytest --schedules=1000` runs that many of each example.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.driver.checks.pictures import timeline
from tests.mpmd.page import PAGE, page

RNG = np.random.default_rng(7)
F32 = np.float32


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F32)


def schedules(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--schedules"))


def assert_page_says_the_gain(apart: float, together: float) -> None:
    """The page has both durations, given in nanoseconds, as microseconds."""
    text = " ".join(PAGE.read_text("utf-8").split())
    assert f"would take {apart / 1000:.1f} µs of model time; this takes {together / 1000:.1f}" in text


def indices(high: int, count: int) -> Any:
    return RNG.integers(0, high, count).astype(np.int32)


# Rows are gathered by one core and multiplied by another.


@pytest.mark.parametrize(("rows", "tokens", "k", "n"), [(8, 1, 4, 4), (16, 9, 8, 4), (24, 5, 3, 7), (64, 100, 16, 8)])
def test_gathered_rows_are_multiplied(rows: int, tokens: int, k: int, n: int) -> None:
    which, x, w = indices(tokens, rows), normal(tokens, k), normal(k, n)
    assert np.allclose(page().gather_matmul(which, x, w), x[which] @ w, atol=1e-5)


@pytest.mark.one_executor
def test_gathering_and_multiplying_have_no_finding(request: pytest.FixtureRequest) -> None:
    arguments = indices(9, 24), normal(9, 4), normal(4, 4)
    assert pl.check(page().gather_matmul, *arguments, schedules=schedules(request)).ok


def gather_only(which: Any, x: Any) -> Any:
    """The first half of the example, alone: x[which] by two cores."""
    steps = len(which) // 2

    def gather(i_ref: Any, x_ref: Any, o_ref: Any, come: Any) -> None:
        first = pl.axis_index("core") * steps

        @pl.loop(0, steps)
        def _(r: Any) -> None:
            pltpu.async_copy(x_ref.at[i_ref[first + r]], o_ref.at[first + r], come)

        rows = o_ref.at[pl.ds(first, steps)]
        pltpu.make_async_copy(rows, rows, come).wait()

    out = pl.ShapeDtypeStruct((len(which), x.shape[1]), F32)
    return pl.kernel(gather, out, mesh=page().GATHER, scratch_types=[pltpu.SemaphoreType.DMA])(which, x)


def multiply_only(x: Any, w: Any) -> Any:
    """The second half of the example, alone: x @ w by two cores, block after block."""
    block = page().BLOCK
    steps = len(x) // (2 * block)

    def multiply(x_ref: Any, w_ref: Any, o_ref: Any) -> None:
        @pl.loop(0, steps)
        def _(step: Any) -> None:
            rows = pl.ds((pl.axis_index("core") * steps + step) * block, block)
            o_ref[rows] = jnp.dot(x_ref[rows], w_ref[...])

    return pl.kernel(multiply, pl.ShapeDtypeStruct((len(x), w.shape[1]), F32), mesh=page().MULTIPLY)(x, w)


def test_gathering_while_multiplying_takes_less_model_time_than_one_after_the_other() -> None:
    which, x, w = page().indices, page().x, page().w
    both = timeline(page().gather_matmul, which, x, w)
    assert np.allclose(multiply_only(gather_only(which, x), w), x[which] @ w, atol=1e-4)
    apart = timeline(gather_only, which, x).duration + timeline(multiply_only, x[which], w).duration
    assert both.overlap("copy", "compute") > 0.5 * both.duration
    assert both.duration < 0.7 * apart
    assert_page_says_the_gain(apart, both.duration)


# Products of one chunk while the chunk before is added up.


@pytest.mark.parametrize(("chunks", "choices", "tokens", "groups"), [(1, 1, 4, 1), (2, 2, 8, 3), (5, 3, 4, 2)])
def test_products_of_experts_are_added_up(chunks: int, choices: int, tokens: int, groups: int) -> None:
    tile = page().TILE
    which = RNG.integers(0, groups, (chunks, choices, tokens // tile)).astype(np.int32)
    x, w = normal(chunks, choices, tokens, 6), normal(groups, 6, 4)
    expected = np.einsum("cjtk,cjtkn->ctn", x, w[np.repeat(which, tile, axis=2)])
    assert np.allclose(page().combined_experts(which, x, w), expected, atol=1e-5)


def experts(chunks: int, choices: int, tokens: int, k: int, n: int) -> Any:
    which = RNG.integers(0, 2, (chunks, choices, tokens // page().TILE)).astype(np.int32)
    return which, normal(chunks, choices, tokens, k), normal(2, k, n)


@pytest.mark.one_executor
def test_products_and_sums_have_no_finding(request: pytest.FixtureRequest) -> None:
    assert pl.check(page().combined_experts, *experts(3, 2, 4, 4, 4), schedules=schedules(request)).ok


def products_only(which: Any, x: Any, w: Any) -> Any:
    """The first half of the example, alone: the products of all tiles by three cores."""
    chunks, choices, tokens, _ = x.shape
    tile, workers = page().TILE, page().PRODUCTS.shape["worker"]
    tiles = tokens // tile

    def products(groups: Any, x_ref: Any, w_ref: Any, parts: Any) -> None:
        @pl.loop(0, chunks)
        def _(chunk: Any) -> None:
            @pl.loop(pl.axis_index("worker"), choices * tiles, step=workers)
            def _(number: Any) -> None:
                choice, rows = number // tiles, pl.ds(number % tiles * tile, tile)
                group = groups[chunk, choice, number % tiles]
                parts[chunk, choice, rows] = jnp.dot(x_ref[chunk, choice, rows], w_ref[group])

    out = pl.ShapeDtypeStruct((chunks, choices, tokens, w.shape[2]), F32)
    return pl.kernel(products, out, mesh=page().PRODUCTS)(which, x, w)


def sums_only(parts: Any) -> Any:
    """The second half of the example, alone: sum_j parts[c, j] by one core."""
    chunks, _, tokens, n = parts.shape

    def sums(parts_ref: Any, o_ref: Any) -> None:
        @pl.loop(0, chunks)
        def _(chunk: Any) -> None:
            o_ref[chunk] = jnp.sum(parts_ref[chunk], axis=0)

    return pl.kernel(sums, pl.ShapeDtypeStruct((chunks, tokens, n), F32), mesh=page().SUMS)(parts)


def test_sums_beside_products_take_less_model_time_than_after_them() -> None:
    arguments = page().tile_groups, page().tokens, page().experts
    parts = products_only(*arguments)
    both = timeline(page().combined_experts, *arguments)
    assert np.allclose(sums_only(parts), page().combined_experts(*arguments), atol=1e-5)
    apart = timeline(products_only, *arguments).duration + timeline(sums_only, parts).duration
    adding, multiplying = (
        [span for span in both.spans if span.kind == "compute" and span.lane.block.startswith(core)]
        for core in ("reducer", "worker")
    )
    assert any(one.start < other.end and other.start < one.end for one in adding for other in multiplying)
    assert both.duration < 0.9 * apart
    assert_page_says_the_gain(apart, both.duration)


# A scalar core deals out tiles of groups.


@pytest.mark.parametrize("sizes", [[4], [0], [1, 1, 1], [3, 0, 9, 1, 6, 13], [0, 0, 5, 0], [40, 2]])
def test_groups_of_any_size_are_scaled(sizes: list[int]) -> None:
    x, scales = normal(max(sum(sizes), page().ROWS), 6), normal(len(sizes), 6)
    rows = sum(sizes)
    found = page().scaled_by_group(np.array(sizes, np.int32), x, scales)
    assert np.array_equal(found[:rows], x[:rows] * np.repeat(scales, sizes, axis=0))


@pytest.mark.one_executor
def test_the_queue_of_jobs_has_no_finding(request: pytest.FixtureRequest) -> None:
    sizes = np.array([3, 0, 9, 21, 6], np.int32)
    assert pl.check(page().scaled_by_group, sizes, normal(39, 4), normal(5, 4), schedules=schedules(request)).ok


@pytest.mark.one_executor
def test_a_queue_whose_slots_are_not_awaited_is_found() -> None:
    """The same queue of one slot, into which the scalar core puts the next job at once."""
    scalar, vector = pltpu.ScalarSubcoreMesh("core"), pltpu.VectorSubcoreMesh("core", "subcore", 1, 1)

    def walk(o_ref: Any, jobs: Any, arrived: Any, job: Any, sent: Any) -> None:
        for number in range(2):
            job[0] = number
            pltpu.async_remote_copy(job, jobs, sent, arrived, {"subcore": 0}).wait_send()

    def work(o_ref: Any, jobs: Any, arrived: Any, job: Any, sent: Any) -> None:
        for number in range(2):
            pltpu.make_async_copy(jobs, jobs, arrived).wait()
            o_ref[number] = jobs[0]

    call = pl.mpmd_map(
        [(scalar, walk), (vector, work)],
        pl.ShapeDtypeStruct((2,), np.int32),
        scratch_types=[
            (pltpu.SMEM @ vector)((1,), np.int32),
            pltpu.SemaphoreType.DMA @ vector,
            (pltpu.SMEM @ scalar)((1,), np.int32),
            pltpu.SemaphoreType.DMA @ scalar,
        ],
    )
    report = pl.check(call)
    assert not report.ok
    assert {participant.thread.split()[-1] for finding in report.findings for participant in finding.participants} == {
        "walk",
        "work",
    }


# Every schedule that can differ.


def smallest() -> dict[str, Any]:
    """Each example on the least that uses a slot twice."""
    return {
        "gather_matmul": (indices(3, 24), normal(3, 2), normal(2, 2)),
        "combined_experts": experts(3, 1, 4, 2, 2),
        "scaled_by_group": (np.array([2, 5], np.int32), normal(7, 2), normal(2, 2)),
    }


@pytest.mark.one_executor
@pytest.mark.parametrize("name", ["gather_matmul", "combined_experts", "scaled_by_group"])
def test_exhaustive_exploration_of_an_example_is_complete(name: str) -> None:
    report = pl.check(getattr(page(), name), *smallest()[name], exhaustive=True)
    assert report.ok and report.complete
