"""Pallas' spellings that choose the simulator for kernels of cores."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.driver.simulation import SimulatorWarning

X = np.arange(8, dtype=np.float32)
OUT = pl.ShapeDtypeStruct((8,), np.float32)
SCRATCH = [pltpu.VMEM((8,), np.float32), pltpu.SemaphoreType.DMA]


@pytest.fixture(autouse=True)
def no_mode() -> Iterator[None]:
    yield
    pltpu.set_tpu_interpret_mode(False)


def hasty(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
    buffer[...] = x_ref[...] * 0
    copy = pltpu.async_copy(x_ref, buffer, semaphore)
    o_ref[...] = buffer[...]
    copy.wait()


def run(interpret: Any = None) -> Any:
    return pl.pallas_call(hasty, OUT, scratch_shapes=SCRATCH, interpret=interpret)(X)


def test_copies_take_effect_when_they_are_awaited() -> None:
    assert not run(pltpu.InterpretParams()).any()


def test_eager_copies_take_effect_at_once() -> None:
    assert np.array_equal(run(pltpu.InterpretParams(dma_execution_mode="eager")), X)


def test_a_seed_keeps_when_copies_take_effect() -> None:
    for seed in range(4):
        assert not run(pltpu.InterpretParams(random_seed=seed)).any()
        assert np.array_equal(run(pltpu.InterpretParams("eager", random_seed=seed)), X)


def test_races_are_raised_on_demand() -> None:
    with pytest.raises(pl.PalladioError, match="copy-not-awaited"):
        run(pltpu.InterpretParams(detect_races=True))


def test_races_may_be_warned_of() -> None:
    with pytest.warns(SimulatorWarning, match="copy-not-awaited"):
        run(pltpu.InterpretParams(detect_races=True, on_race="warn"))


def test_uninitialised_memory_holds_what_was_chosen() -> None:
    def kernel(o_ref: Any, buffer: Any, semaphore: Any) -> None:
        pltpu.async_copy(buffer, o_ref, semaphore).wait()

    def found(memory: str) -> Any:
        params = pltpu.InterpretParams(uninitialized_memory=memory)
        return pl.pallas_call(kernel, OUT, scratch_shapes=SCRATCH, interpret=params)()

    assert np.isnan(found("nan")).all()
    assert not found("zero").any()


def test_a_mode_holds_for_a_block() -> None:
    with pltpu.force_tpu_interpret_mode():
        assert not run().any()
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(dma_execution_mode="eager")):
        assert np.array_equal(run(), X)
    assert np.array_equal(run(), X)


def test_a_mode_may_be_set_until_it_is_ended() -> None:
    pltpu.set_tpu_interpret_mode(pltpu.InterpretParams())
    assert not run().any()
    pltpu.set_tpu_interpret_mode(False)
    assert np.array_equal(run(), X)


def test_programs_of_several_meshes_take_the_parameters_too() -> None:
    def send(x_ref: Any, o_ref: Any, row: Any, come: Any, sent: Any) -> None:
        pltpu.async_remote_copy(x_ref, row, sent, come, {"b": 0}).wait_send()

    def receive(x_ref: Any, o_ref: Any, row: Any, come: Any, sent: Any) -> None:
        pltpu.make_async_copy(row, row, come).wait()
        o_ref[...] = row[...]

    first, second = pl.CoreMesh("a", 1), pl.CoreMesh("b", 1)
    scratch = [
        (pltpu.VMEM @ second)((8,), np.float32),
        pltpu.SemaphoreType.DMA @ second,
        pltpu.SemaphoreType.DMA @ first,
    ]
    for params in (pltpu.InterpretParams(detect_races=True), pltpu.InterpretParams(random_seed=3)):
        call = pl.mpmd_map([(first, send), (second, receive)], OUT, scratch_types=scratch, interpret=params)
        assert np.array_equal(call(X), X)


def test_resetting_needs_nothing() -> None:
    pltpu.reset_tpu_interpret_mode_state()
    assert np.array_equal(run(), X)


@pytest.mark.parametrize("mode", ["on_wait", "eager"])
@pytest.mark.parametrize("detect_races", [True, False])
@pytest.mark.parametrize("scoped", [True, False])
def test_a_copy_that_nothing_waits_for_is_found(mode: str, detect_races: bool, scoped: bool) -> None:
    def kernel(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
        pltpu.async_copy(x_ref, buffer, semaphore)
        o_ref[...] = x_ref[...]

    def in_a_scope(x_ref: Any, o_ref: Any) -> None:
        pl.run_scoped(lambda *scratch: kernel(x_ref, o_ref, *scratch), *SCRATCH)

    interpret = pltpu.InterpretParams(mode, detect_races=detect_races)
    call = (
        pl.pallas_call(in_a_scope, OUT, interpret=interpret)
        if scoped
        else pl.pallas_call(kernel, OUT, scratch_shapes=SCRATCH, interpret=interpret)
    )
    with pytest.raises(pl.PalladioError, match=r"semaphore-not-drained: .* ends at 32"):
        call(X)


def test_an_index_outside_is_an_error_without_looking_for_races() -> None:
    def in_a_launch(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.ds(pl.axis_index("c") + 4, 8)] = x_ref[...]

    with pytest.raises(pl.PalladioError, match="out-of-bounds"):
        pl.kernel(in_a_launch, OUT, mesh=pltpu.TensorCoreMesh(axis_name="c"), interpret=pltpu.InterpretParams())(X)


@pytest.mark.parametrize("interpret", [None, "reference", pltpu.InterpretParams(detect_races=True)])
def test_cores_reach_what_their_peers_allocate_in_a_scope(interpret: Any) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        me, mine = pl.axis_index("c"), pl.ds(4 * pl.axis_index("c"), 4)

        @pl.loop(0, 3)
        def _(i: Any) -> None:
            def exchange(ready: Any, half: Any, sent: Any, received: Any) -> None:
                pl.semaphore_signal(ready, device_id={"c": 1 - me})
                pl.semaphore_wait(ready)
                pltpu.async_remote_copy(x_ref.at[mine], half, sent, received, device_id={"c": 1 - me}).wait()
                o_ref[mine] = half[...] + i.astype(np.float32)

            dma = pltpu.SemaphoreType.DMA
            pl.run_scoped(exchange, pltpu.SemaphoreType.REGULAR, pltpu.VMEM((4,), np.float32), dma, dma)

    mesh = pltpu.TensorCoreMesh(axis_name="c", num_cores=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.NotCompiledWarning)
        found = pl.kernel(kernel, OUT, mesh=mesh, interpret=interpret)(X)
    assert np.array_equal(found, np.roll(X, 4) + 2)


def test_findings_name_scratch_of_a_mapping_by_its_keys() -> None:
    def kernel(x_ref: Any, o_ref: Any, done: Any, buffer: Any) -> None:
        pltpu.async_copy(x_ref, buffer, done)
        o_ref[...] = buffer[...]

    scratch = {"done": pltpu.SemaphoreType.DMA, "buffer": pltpu.VMEM((8,), np.float32)}
    interpret = pltpu.InterpretParams(detect_races=True)
    with pytest.raises(pl.PalladioError, match=r"copy-not-awaited: buffer \(f32\[8\] in vmem\) is read"):
        pl.pallas_call(kernel, OUT, scratch_shapes=scratch, interpret=interpret)(X)


def copied(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def halves(first: int) -> pl.BlockSpec:
    return pl.BlockSpec((4,), lambda i: (i + first,))


def in_halves(inputs: int, outputs: int, **params: Any) -> Any:
    interpret = pltpu.InterpretParams(**params)
    specs = {"in_specs": [halves(inputs)], "out_specs": halves(outputs)}
    return pl.pallas_call(copied, OUT, grid=(2,), **specs, interpret=interpret)(X)


def test_an_index_outside_is_an_error_in_a_kernel_without_copies() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref[0] = x_ref[x_ref[1].astype(np.int32) + 8]

    call = pl.pallas_call(kernel, OUT, interpret=pltpu.InterpretParams())
    with pytest.raises(pl.PalladioError, match=r"(?s)elements 9 to 9 of 8.*Out-of-bounds read"):
        call(X)
    lenient = pl.pallas_call(kernel, OUT, interpret=pltpu.InterpretParams(out_of_bounds_reads="uninitialized"))
    assert np.isnan(lenient(X)[0])


@pytest.mark.parametrize(("blocks", "kind"), [((1, 0), 'input "x_ref"'), ((0, 1), 'output "o_ref"')])
def test_a_block_outside_of_its_array_is_an_error(blocks: Any, kind: str) -> None:
    words = rf"block \(2,\) of .* lies outside of its array, \(8,\)[\s\S]*Out-of-bounds block index \(2,\) for {kind}"
    with pytest.raises(pl.PalladioError, match=words):
        in_halves(*blocks)
    uninitialised = in_halves(*blocks, out_of_bounds_reads="uninitialized")
    assert np.isnan(uninitialised[4 * blocks[0] : 8 - 4 * blocks[1]]).all()


def test_blocks_inside_and_ragged_ones_are_as_ever() -> None:
    assert np.array_equal(in_halves(0, 0), X)
    block = pl.BlockSpec((3,), lambda i: (i,))
    call = pl.pallas_call(copied, OUT, grid=(3,), in_specs=[block], out_specs=block, interpret=pltpu.InterpretParams())
    assert np.array_equal(call(X), X)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_block_of_an_output_is_visited_in_one_go(axis: int) -> None:
    block = pl.BlockSpec((4,), lambda *ids: (ids[axis],))
    specs = {"in_specs": [block], "out_specs": block}
    call = pl.pallas_call(copied, OUT, grid=(2, 2), **specs, interpret=pltpu.InterpretParams())
    if axis == 0:
        assert np.array_equal(call(X), X)
        return
    with pytest.raises(ValueError, match=r"Revisited block \(0,\) of output 0 in iteration \(1, 0\)"):
        call(X)
    aliased = pl.pallas_call(
        copied, OUT, grid=(2, 2), **specs, input_output_aliases={0: 0}, interpret=pltpu.InterpretParams()
    )
    assert np.array_equal(aliased(X), X)


TWO_CORES = pltpu.InterpretParams(detect_races=True, num_cores_or_threads=2)
CORES = pltpu.create_tensorcore_mesh("core", num_cores=2)


def racy_kernel(x: Any) -> Any:
    return pl.kernel(pltpu.sync_copy, pl.ShapeDtypeStruct.like(x), mesh=CORES, interpret=TWO_CORES)(x)


def racy_core_map(x: Any) -> Any:
    def on_cores(refs: Any) -> None:
        pl.core_map(CORES, interpret=TWO_CORES)(lambda: pltpu.sync_copy(*refs))

    return pl.run_state(on_cores)((x, jnp.zeros_like(x)))[1]


def racy_grid(x: Any) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype),
        grid=(2,),
        in_specs=[pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((1, x.shape[1]), lambda i: (0, 0)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=TWO_CORES,
    )(x)


@pytest.mark.parametrize("function", [racy_kernel, racy_core_map, racy_grid], ids=lambda each: each.__name__)
def test_races_of_calls_in_a_staged_function_are_found(function: Any) -> None:
    x = np.ones((2, 4), np.float32)
    for call in (function, pl.jit(function)):
        with pytest.raises(pl.PalladioError, match="global-race"):
            call(x)
