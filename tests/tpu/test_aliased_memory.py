"""An input that an output aliases: one memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu

EXECUTORS = ["reference", "simulator", "cpu", pltpu.InterpretParams()]


@pytest.mark.one_executor
@pytest.mark.parametrize("interpret", EXECUTORS, ids=str)
@pytest.mark.parametrize("space", [pl.ANY, pltpu.HBM])
def test_arrays_in_main_memory_are_one(interpret: Any, space: Any) -> None:
    def kernel(x: Any, out: Any, held: Any) -> None:
        pltpu.sync_copy(x.at[0], held)
        held[...] += 1
        pltpu.sync_copy(held, out.at[0])
        pltpu.sync_copy(held, out.at[1 + pl.program_id(0)])

    spec = pl.BlockSpec(memory_space=space)
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((4, 8), np.float32),
        grid=(3,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((8,), np.float32)],
        input_output_aliases={0: 0},
        interpret=interpret,
    )
    x = np.zeros((4, 8), np.float32)
    assert call(x)[:, 0].tolist() == [3, 1, 2, 3]
    assert not x.any()


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])
def test_a_write_through_such_an_input_is_kept(executor: str) -> None:
    def kernel(x: Any, out: Any) -> None:
        x[0] = x[1] + out[2]

    spec = plgpu.BlockSpec(memory_space=plgpu.GMEM)
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((3,), np.float32),
        in_specs=[spec],
        out_specs=spec,
        input_output_aliases={0: 0},
    )
    with pl.executor(executor):
        assert call(np.array([1, 2, 3], np.float32)).tolist() == [5, 2, 3]


def transposed(interpret: Any) -> Any:
    """Adds the number of the step to each block, and stores it at the transposed place."""

    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] + (3 * pl.program_id(0) + pl.program_id(1))
        out[...] = out[...] + 0 * x[...]

    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((6, 3), np.int32),
        grid=(3, 3),
        in_specs=[pl.BlockSpec((2, 1), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((2, 1), lambda i, j: (j, i)),
        input_output_aliases={0: 0},
        interpret=interpret,
    )(np.zeros((6, 3), np.int32))[::2]


@pytest.mark.one_executor
@pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")
@pytest.mark.parametrize("interpret", EXECUTORS, ids=str)
def test_blocks_are_fetched_when_the_grid_comes_to_them(interpret: Any) -> None:
    expected = np.zeros((3, 3), int)
    for step, (i, j) in enumerate(np.ndindex(3, 3)):
        expected[j, i] = expected[i, j] + step
    assert np.array_equal(transposed(interpret), expected)


@pytest.mark.one_executor
@pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")
@pytest.mark.parametrize("interpret", EXECUTORS, ids=str)
def test_a_block_is_fetched_again_when_the_grid_comes_back(interpret: Any) -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] + 1
        out[...] = out[...] * 10 + x[...]  # the block that was fetched, not the one stored

    spec = pl.BlockSpec((1,), lambda i: (i % 2,))
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((2,), np.int32),
        grid=(4,),
        in_specs=[spec],
        out_specs=spec,
        input_output_aliases={0: 0},
        interpret=interpret,
    )
    x = np.array([0, 1], np.int32)
    assert call(x).tolist() == [120, 241]
    assert x.tolist() == [0, 1]


@pytest.mark.one_executor
@pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")
@pytest.mark.parametrize("interpret", EXECUTORS, ids=str)
def test_an_input_that_stays_sees_the_stores_to_blocks_of_its_alias(interpret: Any) -> None:
    def kernel(x: Any, out: Any, held: Any) -> None:
        pltpu.sync_copy(x.at[pl.ds(0, 1)], held)
        out[...] = held[...] + 1

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((3,), np.int32),
        grid=(3,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((1,), lambda i: (i,)),
        scratch_shapes=[pltpu.VMEM((1,), np.int32)],
        input_output_aliases={0: 0},
        interpret=interpret,
    )
    assert call(np.zeros(3, np.int32)).tolist() == [1, 2, 2]


@pytest.mark.one_executor
@pytest.mark.parametrize("interpret", EXECUTORS, ids=str)
def test_a_block_reaches_main_memory_when_the_grid_leaves_it(interpret: Any) -> None:
    def kernel(x: Any, out: Any, held: Any) -> None:
        pltpu.sync_copy(x, held)
        out[...] = held[...] + 1
        pltpu.sync_copy(x, held)
        out[...] = out[...] * 10 + held[...]

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((3,), np.int32),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[pltpu.VMEM((3,), np.int32)],
        input_output_aliases={0: 0},
        interpret=interpret,
    )
    assert call(np.array([0, 1, 2], np.int32)).tolist() == [10, 21, 32]


@pytest.mark.one_executor
@pytest.mark.filterwarnings("error::palladio.NotCompiledWarning")
@pytest.mark.parametrize("interpret", [*EXECUTORS, "hopper-twin"], ids=str)
def test_blocks_that_the_output_holds_are_fetched_as_they_were(interpret: Any) -> None:
    def kernel(x: Any, out: Any) -> None:
        out[1 + pl.program_id(0)] = x[0] + 10

    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((4,), np.int32),
        grid=(3,),
        in_specs=[pl.BlockSpec((1,), lambda i: (i,))],
        out_specs=pl.BlockSpec((4,), lambda i: (0,)),
        input_output_aliases={0: 0},
        interpret=interpret,
    )
    assert call(np.arange(4, dtype=np.int32)).tolist() == [0, 10, 11, 12]


def update(interpret: Any, index_map: Any = lambda i, order: (order[i],), block: Any = (1,)) -> Any:
    """Ten times each block that the order names, and the number of the step."""

    def kernel(order: Any, x: Any, out: Any) -> None:
        out[...] = x[...] * 10 + pl.program_id(0)

    spec = pl.BlockSpec(block, index_map)
    return pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((4,), np.int32),
        grid_spec=pltpu.PrefetchScalarGridSpec(1, (4,), [spec], spec),
        input_output_aliases={1: 0},
        interpret=interpret,
    )


@pytest.mark.one_executor
@pytest.mark.filterwarnings("error::palladio.NotCompiledWarning")
@pytest.mark.parametrize("interpret", EXECUTORS, ids=str)
@pytest.mark.parametrize("shifted", [False, True], ids=["loaded", "computed"])
def test_blocks_that_data_name_are_fetched_again(interpret: Any, shifted: bool) -> None:
    call = update(interpret, (lambda i, order: (order[i] + 1,)) if shifted else (lambda i, order: (order[i],)))
    x = np.arange(1, 5, dtype=np.int32)
    for order, expected in (([2, 2, 0, 2], [12, 2, 313, 4]), ([3, 1, 0, 2], [12, 21, 33, 40])):
        assert call(np.array(order, np.int32) - shifted, x).tolist() == expected
    assert x.tolist() == [1, 2, 3, 4]


@pytest.mark.one_executor
@pytest.mark.filterwarnings("ignore::palladio.NotCompiledWarning")
@pytest.mark.parametrize("interpret", ["reference", "simulator", "cpu"])
def test_windows_that_data_name_may_overlap(interpret: Any) -> None:
    call = update(interpret, block=(pl.Element(2),))
    found = call(np.array([0, 1, 2, 0], np.int32), np.arange(1, 5, dtype=np.int32))
    assert found.tolist() == [103, 2013, 312, 42]
