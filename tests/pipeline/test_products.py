"""Pipelines around the tensor cores: carried accumulators, delays, clusters, chains, and what leaving them out does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from tests.pipeline.model import check_everywhere

BM, BN, BK = 16, 16, 16
RNG = np.random.default_rng(0)

pytestmark = pytest.mark.one_executor  # `check_everywhere` runs on several


def operands(m: int, n: int, k: int) -> tuple[Any, Any]:
    """Small integers, whose products f16 holds exactly."""
    return tuple(RNG.integers(-2, 3, shape).astype(np.float16) for shape in ((m, k), (k, n)))


def checked(call: Any, *args: Any) -> Any:
    """The result of a kernel that has no finding."""
    return check_everywhere(call, *args, schedules=4)


def codes(call: Any, *args: Any, schedules: int = 16) -> set[str]:
    """What is found."""
    return {finding.code for finding in pl.check(call, *args, schedules=schedules, seed=0).findings}


# One thread.


def matmul(m: int, n: int, k: int, *, delays: tuple[Any, Any] = (1, 1), old: int | None = None, wait: int = 1) -> Any:
    """A product whose pipeline carries the accumulator."""

    def body(a: Any, b: Any, o: Any) -> None:
        i, j = pl.axis_index("i"), pl.axis_index("j")

        def step(_: Any, a_ref: Any, b_ref: Any, acc: Any) -> Any:
            plgpu.wgmma(acc, a_ref, b_ref)
            plgpu.wgmma_wait(wait)
            return acc

        def scoped(acc: Any) -> Any:
            last = plgpu.emit_pipeline(
                step,
                grid=(k // BK,),
                in_specs=[
                    plgpu.BlockSpec((BM, BK), lambda s: (i, s), delay_release=delays[0]),
                    plgpu.BlockSpec((BK, BN), lambda s: (s, j), delay_release=delays[1]),
                ],
                max_concurrent_steps=3,
                init_carry=acc,
                delay_release=old,
            )(a, b)
            assert last is acc
            return acc[...].astype(np.float16)

        value = pl.run_scoped(scoped, plgpu.ACC((BM, BN)))

        def write(_: Any, o_ref: Any) -> None:
            o_ref[...] = value

        plgpu.emit_pipeline(write, grid=(1,), out_specs=[plgpu.BlockSpec((BM, BN), lambda _: (i, j))])(o)

    return plgpu.kernel(body, pl.ShapeDtypeStruct((m, n), np.float16), grid=(m // BM, n // BN), grid_names=("i", "j"))


@pytest.mark.parametrize(
    ("delays", "old", "wait"), [((1, 1), None, 1), ((None, None), 1, 1), ((1, 2), None, 1), ((0, 0), None, 0)]
)
def test_a_product_with_a_carried_accumulator(delays: Any, old: int | None, wait: int) -> None:
    a, b = operands(32, 32, 96)
    np.testing.assert_array_equal(checked(matmul(32, 32, 96, delays=delays, old=old, wait=wait), a, b), a @ b)


@pytest.mark.parametrize("delays", [(0, 0), (1, 0), (0, 1)])
def test_leaving_out_the_delay_is_a_race(delays: Any) -> None:
    a, b = operands(16, 16, 96)
    assert "wgmma-operand-overwritten" in codes(matmul(16, 16, 96, delays=delays), a, b)


def test_arrays_are_carried() -> None:
    def body(x: Any, o: Any) -> None:
        def step(indices: Any, x_ref: Any, carry: Any) -> Any:
            return {"sum": carry["sum"] + x_ref[...], "last": indices[0]}

        start = {"sum": x[0:4] * 0, "last": np.int32(-1)}
        last = plgpu.emit_pipeline(
            step,
            grid=(3,),
            in_specs=[plgpu.BlockSpec((4,), lambda s: (s,))],
            max_concurrent_steps=2,
            init_carry=start,
        )(x)
        o[...] = last["sum"] * last["last"].astype(np.float32)

    x = np.arange(12, dtype=np.float32)
    found = checked(plgpu.kernel(body, pl.ShapeDtypeStruct((4,), np.float32)), x)
    np.testing.assert_array_equal(found, x.reshape(3, 4).sum(0) * 2)


def test_references_and_specs_are_pytrees() -> None:
    def body(pair: Any, o: Any) -> None:
        def step(_: Any, pair_refs: Any, o_ref: Any) -> None:
            o_ref[...] = pair_refs["x"][...] - pair_refs["y"][...]

        spec = plgpu.BlockSpec((4,), lambda s: (s,))
        plgpu.emit_pipeline(step, grid=(3,), in_specs=[{"x": spec, "y": spec}], out_specs=(spec,))(pair, o)

    x, y = np.arange(12, dtype=np.float32), np.ones(12, np.float32)
    found = checked(plgpu.kernel(body, pl.ShapeDtypeStruct((12,), np.float32)), {"x": x, "y": y})
    np.testing.assert_array_equal(found, x - y)


def test_one_spec_serves_all_leaves_of_an_argument() -> None:
    def body(pair: Any, o: Any) -> None:
        def step(_: Any, pair_refs: Any, o_ref: Any) -> None:
            o_ref[...] = pair_refs[0][...] + pair_refs[1][...]

        spec = plgpu.BlockSpec((4,), lambda s: (s,))
        plgpu.emit_pipeline(step, grid=(3,), in_specs=[spec], out_specs=spec)(pair, o)

    x = np.arange(12, dtype=np.float32)
    found = checked(plgpu.kernel(body, pl.ShapeDtypeStruct((12,), np.float32)), (x, x))
    np.testing.assert_array_equal(found, 2 * x)


# Several threads.


def specialized(
    m: int,
    n: int,
    k: int,
    *,
    wait: int = 1,
    delays: tuple[int, int] = (1, 1),
    cluster: str = "",
    memory: int | None = None,
    slots: int = 3,
) -> Any:
    """Two threads compute the upper and the lower half of a tile and write it through shared memory."""
    half = BM // 2

    def body(a: Any, b: Any, o: Any) -> None:
        i, j, wg = pl.axis_index("i"), pl.axis_index("j"), pl.axis_index("wg")
        mine = pl.ds((wg - 1 if memory == 0 else wg) * half, half)
        shared = {"a": "j" if "j" in cluster else (), "b": "i" if "i" in cluster else ()}

        def step(_: Any, a_ref: Any, b_ref: Any, acc: Any) -> Any:
            plgpu.wgmma(acc, a_ref.at[mine, :], b_ref)
            plgpu.wgmma_wait(wait)
            return acc

        def context(pipeline: Any) -> None:
            def scoped(acc: Any) -> None:
                pipeline(acc)
                o.at[pl.ds(i * BM, BM), pl.ds(j * BN, BN)].at[mine, :][...] = acc[...].astype(np.float16)

            pl.run_scoped(scoped, plgpu.ACC((half, BN)))

        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(k // BK,),
            memory_registers=40,
            in_specs=[
                plgpu.BlockSpec((BM, BK), lambda s: (i, s), delay_release=delays[0], collective_axes=shared["a"]),
                plgpu.BlockSpec((BK, BN), lambda s: (s, j), delay_release=delays[1], collective_axes=shared["b"]),
            ],
            max_concurrent_steps=slots,
            wg_axis="wg",
            num_compute_wgs=2,
            compute_context=context,
            memory_thread_idx=memory,
        )(a, b)

    axes = {"grid": (m // BM, n // BN), "grid_names": ("i", "j")}
    if cluster:
        axes = {"cluster": (m // BM, n // BN), "cluster_names": ("i", "j")}
    return plgpu.kernel(body, pl.ShapeDtypeStruct((m, n), np.float16), num_threads=3, thread_name="wg", **axes)


@pytest.mark.parametrize("delays", [(1, 1), (1, 2)])
@pytest.mark.parametrize("memory", [None, 0])
def test_a_warp_specialised_product(memory: int | None, delays: Any) -> None:
    a, b = operands(32, 16, 80)
    found = checked(specialized(32, 16, 80, memory=memory, delays=delays), a, b)
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize("delays", [(0, 0), (1, 0), (0, 1)])
def test_leaving_out_the_delay_is_a_race_among_threads_too(delays: Any) -> None:
    a, b = operands(16, 16, 96)
    assert "wgmma-operand-overwritten" in codes(specialized(16, 16, 96, delays=delays, slots=2), a, b)


@pytest.mark.parametrize("cluster", ["i", "j", "ij"])
def test_the_blocks_of_a_cluster_share_copies(cluster: str) -> None:
    a, b = operands(32, 32, 80)
    np.testing.assert_array_equal(checked(specialized(32, 32, 80, cluster=cluster), a, b), a @ b)


def test_one_thread_for_each_block_of_a_cluster_shares_copies() -> None:
    def body(x: Any, o: Any) -> None:
        rank = pl.axis_index("c")

        def step(_: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] * (rank + 1).astype(np.float32)

        plgpu.emit_pipeline(
            step,
            grid=(4,),
            in_specs=[plgpu.BlockSpec((4,), lambda s: (s // 2,), collective_axes="c")],
            out_specs=[plgpu.BlockSpec((None, 4), lambda s: (rank, s))],
            max_concurrent_steps=2,
        )(x, o)

    x = np.arange(8, dtype=np.float32)
    call = plgpu.kernel(body, pl.ShapeDtypeStruct((2, 16), np.float32), cluster=(2,), cluster_names=("c",))
    wanted = np.repeat(x.reshape(2, 4), 2, axis=0).reshape(-1)
    np.testing.assert_array_equal(checked(call, x), np.stack([wanted, 2 * wanted]))
