"""Loops over a grid that threads share: who visits what, in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from tests.dialect.kernels import found, kernel


def visits(grid: Any, threads: int, **options: Any) -> Any:
    """Who visits each point of a static grid, and when: [thread, local index, local steps] for each."""

    def body(o_ref: Any) -> None:
        @plgpu.nd_loop(grid, collective_axes="b", **options)
        def _(info: plgpu.NDLoopInfo) -> None:
            o_ref[info.index] = jnp.stack([pl.axis_index("b"), info.local_index, jnp.int32(info.num_local_steps)])

    return kernel(body, (*grid, 3), grid=(threads,), grid_names="b")()


def test_points_are_dealt_out_in_turn_the_last_axis_fastest() -> None:
    who, when, _ = np.moveaxis(visits((2, 3), 2), -1, 0)
    assert who.tolist() == [[0, 1, 0], [1, 0, 1]]
    assert when.tolist() == [[0, 0, 1], [1, 2, 2]]


def test_only_the_first_threads_take_part_in_the_last_wave() -> None:
    who, _, steps = np.moveaxis(visits((7,), 3), -1, 0)
    assert who.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert steps.tolist() == [3, 2, 2, 3, 2, 2, 3]


def test_more_threads_than_points_leave_some_without_work() -> None:
    assert visits((2,), 5)[:, 0].tolist() == [0, 1]


def test_the_number_of_steps_is_static_where_the_threads_divide_the_grid() -> None:
    steps = []

    def body(o_ref: Any) -> None:
        plgpu.nd_loop((2, 3), collective_axes="b")(lambda info: steps.append(info.num_local_steps))

    kernel(body, grid=(2,), grid_names="b")()
    assert steps == [3]


def test_a_tiling_visits_tile_by_tile() -> None:
    order = visits((4, 4), 1, tiling=(2, 2))[..., 1]
    assert order.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


def test_several_mesh_axes_count_as_one_the_last_fastest() -> None:
    def body(o_ref: Any) -> None:
        @plgpu.nd_loop((6,), collective_axes=("b", "wg"))
        def _(info: plgpu.NDLoopInfo) -> None:
            o_ref[info.index] = pl.axis_index("b") * 10 + pl.axis_index("wg")

    result = kernel(body, (6,), grid=(2,), grid_names="b", num_threads=3, thread_name="wg")()
    assert result.tolist() == [0, 1, 2, 10, 11, 12]


def test_a_carry_goes_from_visit_to_visit() -> None:
    def body(o_ref: Any) -> None:
        @plgpu.nd_loop((7,), collective_axes="b", init_carry=(jnp.int32(0), jnp.int32(1)))
        def last(info: plgpu.NDLoopInfo, carry: Any) -> Any:
            return carry[0] + info.index[0], carry[1] * 2

        o_ref[pl.axis_index("b")] = jnp.stack(last)

    result = kernel(body, (3, 2), grid=(3,), grid_names="b")()
    assert result.tolist() == [[0 + 3 + 6, 8], [1 + 4, 4], [2 + 5, 4]]


def test_the_grid_may_be_known_only_when_the_kernel_runs() -> None:
    def body(n_ref: Any, o_ref: Any) -> None:
        total = plgpu.nd_loop((n_ref[0], 2), collective_axes="b", init_carry=jnp.int32(0))(
            lambda info, carry: carry + 10 * info.index[0] + info.index[1]
        )
        o_ref[pl.axis_index("b")] = total

    run = kernel(body, (4,), grid=(4,), grid_names="b")
    assert run(np.array([3], np.int32)).tolist() == [0 + 20, 1 + 21, 10, 11]
    assert run(np.array([0], np.int32)).tolist() == [0, 0, 0, 0]


def test_an_empty_grid_is_not_visited() -> None:
    def body(o_ref: Any) -> None:
        o_ref[...] = jnp.int32(5)
        plgpu.nd_loop((0, 3), collective_axes="b")(lambda info: o_ref.set(jnp.int32(info.local_index)))

    assert kernel(body, grid=(1,), grid_names="b")() == 5


def test_the_threads_of_a_loop_do_not_race() -> None:
    def body(o_ref: Any) -> None:
        @plgpu.nd_loop((3, 4), collective_axes="b")
        def _(info: plgpu.NDLoopInfo) -> None:
            o_ref[info.index] = jnp.int32(1)

    assert found(kernel(body, (3, 4), grid=(5,), grid_names="b")) == set()


def test_work_stealing_visits_every_point_once_its_own_first() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        @plgpu.dynamic_scheduling_loop(("x", "y"), thread_axis="wg")
        def _(info: plgpu.NDLoopInfo) -> None:
            assert info.num_local_steps is None
            own = (info.index[0] == pl.axis_index("x")) & (info.index[1] == pl.axis_index("y"))

            @pl.when((info.local_index == 0) & (pl.axis_index("wg") == 0))
            def _() -> None:
                plgpu.atomic_add(o_ref, info.index, jnp.where(own, jnp.int32(1), jnp.int32(100)))

    mesh = {"grid": (2, 3), "grid_names": ("x", "y"), "num_threads": 2, "thread_name": "wg"}
    run = kernel(body, (2, 3), input_output_aliases={0: 0}, **mesh)
    assert run(np.zeros((2, 3), np.int32)).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_work_stealing_carries_a_value() -> None:
    def body(o_ref: Any) -> None:
        @plgpu.dynamic_scheduling_loop("x", cluster_axes="c", init_carry=jnp.int32(10))
        def last(info: plgpu.NDLoopInfo, carry: Any) -> Any:
            return carry + info.index[0]

        o_ref[pl.axis_index("x"), pl.axis_index("c")] = last

    result = kernel(body, (3, 2), grid=(3,), grid_names="x", cluster=(2,), cluster_names="c")()
    assert result.tolist() == [[10, 10], [11, 11], [12, 12]]


@pytest.mark.parametrize(
    ("shape", "minor", "width", "order"),
    [
        ((4, 3), 0, 2, [[0, 2, 4], [1, 3, 5], [10, 8, 6], [11, 9, 7]]),
        ((3, 4), 1, 2, [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]),
        ((3, 2), 0, 2, [[0, 2], [1, 3], [5, 4]]),
        ((2, 3), 1, 8, [[0, 1, 2], [3, 4, 5]]),
    ],
)
def test_a_snake_walks_bands_there_and_back(shape: Any, minor: int, width: int, order: Any) -> None:
    points = [plgpu.planar_snake(step, shape, minor, width) for step in range(shape[0] * shape[1])]
    assert [[points.index((row, column)) for column in range(shape[1])] for row in range(shape[0])] == order


@pytest.mark.parametrize(("shape", "minor", "width"), [((4, 6), 0, 2), ((5, 3), 1, 2), ((1, 7), 1, 3)])
def test_a_snake_of_traced_steps_is_that_of_integers(shape: Any, minor: int, width: int) -> None:
    def body(o_ref: Any) -> None:
        @plgpu.nd_loop((shape[0] * shape[1],), collective_axes="b")
        def _(info: plgpu.NDLoopInfo) -> None:
            o_ref[plgpu.planar_snake(info.index[0], shape, minor, width)] = info.index[0]

    result = kernel(body, shape, grid=(2,), grid_names="b")()
    for step in range(result.size):
        assert result[plgpu.planar_snake(step, shape, minor, width)] == step
