"""`pltpu.BufferedRef` and `emit_pipeline_with_allocations`: the slots of a pipeline, allocated around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu

F32 = np.float32
MAIN = pl.BlockSpec(memory_space=pl.ANY)
BLOCK = pl.BlockSpec((2, 8), lambda i: (i, 0))
EXECUTORS = pytest.mark.parametrize(
    "interpret", ["reference", "simulator", "cpu", pltpu.InterpretParams(detect_races=True)], ids=str
)
X = np.arange(64, dtype=F32).reshape(8, 8)


def doubled(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = 2 * x_ref[...]


def run(kernel: Any, *args: Any, out: Any = X, interpret: Any = None, **params: Any) -> Any:
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(out.shape, out.dtype),
        in_specs=[MAIN] * len(args),
        out_specs=MAIN,
        interpret=interpret,
        **params,
    )
    return call(*args)


def pair(**options: Any) -> Any:
    options.setdefault("in_specs", [BLOCK])
    return pltpu.emit_pipeline_with_allocations(doubled, grid=(4,), out_specs=[BLOCK], **options)


@pytest.mark.one_executor
@EXECUTORS
def test_several_runs_of_a_pipeline_share_their_slots(interpret: Any) -> None:
    def kernel(x: Any, o: Any, middle: Any) -> None:
        pipeline, make_allocations = pair()
        made = make_allocations(x, middle)
        assert [each.window_ref.shape for each in made] == [(2, 2, 8)] * 2

        def twice(allocations: Any) -> None:
            pipeline(x, middle, allocations=allocations)
            pipeline(middle, o, allocations=allocations)

        pl.run_scoped(twice, allocations=made)

    found = run(kernel, X, interpret=interpret, scratch_shapes=[pltpu.HBM(X.shape, F32)])
    assert np.array_equal(found, 4 * X)


@pytest.mark.one_executor
@EXECUTORS
def test_slots_as_scratch_bring_their_specs(interpret: Any) -> None:
    """A product whose output is read and written: Pallas' own test of it, smaller."""
    size, block = 12, 4
    allocations = [
        pltpu.BufferedRef.input(pl.BlockSpec((block, block), lambda n, m, k: (m, k)), F32),
        pltpu.BufferedRef.input(pl.BlockSpec((block, block), lambda n, m, k: (k, n)), F32),
        pltpu.BufferedRef.input_output(pl.BlockSpec((block, block), lambda n, m, k: (m, n)), F32),
    ]

    def kernel(x: Any, y: Any, o: Any, *slots: Any) -> None:
        def step(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
            @pl.when(pl.program_id(2) == 0)
            def _() -> None:
                o_ref[...] = np.zeros_like(o_ref[...])

            o_ref[...] += x_ref[...] @ y_ref[...]

        pltpu.sync_copy(x, o)  # its blocks are fetched, so that they must hold something
        pltpu.emit_pipeline(step, grid=(size // block,) * 3)(x, y, o, allocations=list(slots))

    x, y = np.random.default_rng(0).integers(-3, 4, (2, size, size)).astype(F32)
    assert np.array_equal(run(kernel, x, y, out=x, interpret=interpret, scratch_shapes=allocations), x @ y)


@pytest.mark.one_executor
@EXECUTORS
def test_a_block_that_is_read_and_written_is_fetched_when_it_begins(interpret: Any) -> None:
    """Blocks 0 and 1 alternate, so that each is fetched after it was stored."""

    def kernel(x: Any, start: Any, o: Any, slots: Any) -> None:
        def step(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] += x_ref[...]

        pltpu.sync_copy(start, o)
        made = pltpu.BufferedRef.input(BLOCK, F32)
        pl.run_scoped(lambda first: pltpu.emit_pipeline(step, grid=(4,))(x, o, allocations=(first, slots)), first=made)

    start = np.full((4, 8), 100, F32)
    slots = pltpu.BufferedRef.input_output(pl.BlockSpec((2, 8), lambda i: (i % 2, 0)), F32)
    found = run(kernel, X, start, out=start, interpret=interpret, scratch_shapes=[slots])
    assert np.array_equal(found, 100 + X[:4] + X[4:])


@pytest.mark.one_executor
@EXECUTORS
@pytest.mark.parametrize("lookahead", [False, True])
def test_blocks_that_were_fetched_before(interpret: Any, lookahead: bool) -> None:
    mode = pl.Buffered(3, use_lookahead=lookahead, prefetched_count=1)

    def kernel(x: Any, o: Any, window: Any) -> None:
        spec = pl.BlockSpec((2, 8), lambda i: (i, 0), mode)
        pipeline, make_allocations = pair(in_specs=[spec])
        pltpu.sync_copy(x.at[pl.ds(0, 2)], window.at[0])
        window[0] = window[0] + 1  # to be seen: the pipeline does not fetch it again

        def body(allocations: Any) -> None:
            first, second = allocations
            assert first.window_ref is None and first.prefetched_count == 1
            pipeline(x, o, allocations=(first.with_window_ref(window), second))

        pl.run_scoped(body, make_allocations(x, o))

    found = run(kernel, X, interpret=interpret, scratch_shapes=[pltpu.VMEM((3, 2, 8), F32)])
    expected = 2 * X
    expected[:2] += 2
    assert np.array_equal(found, expected)


def test_a_whole_array_that_was_fetched_before() -> None:
    def kernel(x: Any, o: Any, window: Any) -> None:
        whole = pl.BlockSpec((8, 8), lambda i: (0, 0), pl.Buffered(1, prefetched_count=1))
        pipeline, make_allocations = pltpu.emit_pipeline_with_allocations(
            doubled, grid=(1,), in_specs=[whole], out_specs=[pl.BlockSpec((8, 8), lambda i: (0, 0))]
        )
        pltpu.sync_copy(x, window)
        pl.run_scoped(
            lambda made: pipeline(x, o, allocations=(made[0].with_window_ref(window), made[1])),
            make_allocations(x, o),
        )

    assert np.array_equal(run(kernel, X, scratch_shapes=[pltpu.VMEM((8, 8), F32)]), 2 * X)


def test_a_pipeline_allocates_the_outputs_where_only_inputs_are_given() -> None:
    def kernel(x: Any, o: Any) -> None:
        pipeline, make_allocations = pair()
        pl.run_scoped(lambda first: pipeline(x, o, allocations=[first]), first=make_allocations(x, o)[0])

    assert np.array_equal(run(kernel, X), 2 * X)


def test_dynamic_grids_and_arrays_that_are_not_copied() -> None:
    def kernel(x: Any, o: Any) -> None:
        def step(whole: Any, x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...] + whole.shape[0]

        steps = x[0, 4].astype(np.int32)
        specs = {"in_specs": [MAIN, BLOCK], "out_specs": [BLOCK]}
        pipeline, make_allocations = pltpu.emit_pipeline_with_allocations(step, grid=(steps,), **specs)
        made = make_allocations(x, x, o)
        assert [each.buffer_count for each in made] == [0, 2, 2]
        pl.run_scoped(lambda made: pipeline(x, x, o, allocations=made), made)

    assert np.array_equal(run(kernel, X), X + 8)


def test_allocations_of_an_earlier_name() -> None:
    def kernel(x: Any, o: Any) -> None:
        made = pltpu.make_pipeline_allocations(x, o, in_specs=[BLOCK], out_specs=[BLOCK], grid=(4,))
        pl.run_scoped(lambda made: pltpu.emit_pipeline(doubled, grid=(4,))(x, o, allocations=made), made)

    assert np.array_equal(run(kernel, X), 2 * X)


def test_the_properties_of_slots() -> None:
    both = pltpu.BufferedRef.input_output(BLOCK, F32)
    assert (both.is_input, both.is_output, both.is_input_output, both.buffer_count) == (True, True, True, 2)
    assert both.block_shape == (2, 8) and both.compute_index is BLOCK.index_map
    one = pltpu.BufferedRef.output(BLOCK, F32, 3)
    assert (one.is_input, one.window_ref.shape, one.buffer_type) == (False, (3, 2, 8), pltpu.BufferType.OUTPUT)
    other = pl.BlockSpec((2, 8), lambda i: (i + 1, 0))
    assert one.with_spec(other).spec is other
    assert not pltpu.BufferedRef.input(MAIN, F32).is_buffered


@pytest.mark.parametrize(
    ("allocations", "words"),
    [
        (lambda made: [made[0], 3], "the slots of a pipeline are BufferedRefs"),
        (lambda made: [*made, made[0]], "one BufferedRef for each array"),
        (lambda made: [made[0].with_window_ref(None), made[1]], "Expected external window buffer to be bound"),
        (lambda made: [made[0].with_window_ref(made[0].window_ref.at[0, 0]), made[1]], "shape and dtype of the blocks"),
        (lambda made: [pltpu.BufferedRef.input(BLOCK, F32), made[1]], "are allocated first"),
    ],
)
def test_slots_that_do_not_fit(allocations: Any, words: str) -> None:
    def kernel(x: Any, o: Any) -> None:
        pipeline, make_allocations = pair()
        pl.run_scoped(lambda made: pipeline(x, o, allocations=allocations(made)), make_allocations(x, o))

    with pytest.raises(ValueError, match=words) as error:
        run(kernel, X)
    assert "pipeline(x, o, allocations=allocations(made))" in str(error.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pltpu.BufferedRef.input(3, F32), "those of a BlockSpec"),
        (lambda: pltpu.BufferedRef.input(pl.BlockSpec(), F32), "need a block shape"),
        (lambda: pltpu.BufferedRef.input(BLOCK, F32, 0), "at least one"),
        (lambda: pltpu.BufferedRef.input(BLOCK, F32, 2, prefetched_count=3), "as many slots as prefetched"),
        (lambda: pltpu.BufferedRef.create(BLOCK, F32, "input", 2), "a direction is a BufferType"),
    ],
)
def test_slots_that_cannot_be(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_missing_wait_for_a_prefetch_is_found() -> None:
    """The pipeline does not wait for blocks that were fetched before it."""

    def kernel(x: Any, o: Any, window: Any, arrived: Any) -> None:
        spec = pl.BlockSpec((2, 8), lambda i: (i, 0), pl.Buffered(2, prefetched_count=1))
        pipeline, make_allocations = pair(in_specs=[spec])
        copy = pltpu.async_copy(x.at[pl.ds(0, 2)], window.at[0], arrived)
        pl.run_scoped(
            lambda made: pipeline(x, o, allocations=(made[0].with_window_ref(window), made[1])),
            make_allocations(x, o),
        )
        copy.wait()

    scratch = [pltpu.VMEM((2, 2, 8), F32), pltpu.SemaphoreType.DMA]
    with pytest.raises(pl.PalladioError, match="copy-not-awaited: "):
        run(kernel, X, interpret=pltpu.InterpretParams(detect_races=True), scratch_shapes=scratch)
