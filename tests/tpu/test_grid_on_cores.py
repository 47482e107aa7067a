"""`InterpretParams(num_cores_or_threads=...)`: cores that share the parallel axes of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu

ROWS = np.arange(32, dtype=np.int32).reshape(4, 8)
ROW = pl.BlockSpec((1, 8), lambda i: (i, 0))


def on_cores(cores: int = 2, semantics: Any = ("parallel",), **params: Any) -> dict[str, Any]:
    params.setdefault("detect_races", True)
    return {
        "interpret": pltpu.InterpretParams(num_cores_or_threads=cores, **params),
        "compiler_params": pltpu.CompilerParams(dimension_semantics=semantics),
    }


def copied(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def out(*shape: int) -> pl.ShapeDtypeStruct:
    return pl.ShapeDtypeStruct(shape, np.int32)


@pytest.mark.parametrize(
    ("cores", "shares"), [(1, [4]), (2, [2, 2]), (3, [2, 2]), (4, [1, 1, 1, 1]), (6, [1, 1, 1, 1])]
)
def test_each_core_has_its_share_of_the_points(cores: int, shares: list[int]) -> None:
    seen: list[tuple[int, int]] = []

    def recorder(token: Any, point: Any, core: Any) -> Any:
        seen.append((int(core), int(point[0])))
        return token

    call = pl.pallas_call(
        copied, out(4, 8), grid=(4,), in_specs=[ROW], out_specs=ROW, **on_cores(cores, grid_point_recorder=recorder)
    )
    assert np.array_equal(call(ROWS), ROWS)
    assert [sum(core == n for core, _ in seen) for n in range(len(shares))] == shares
    assert sorted(point for _, point in seen) == [0, 1, 2, 3]


def test_one_core_has_all_of_a_grid_without_parallel_axes() -> None:
    def counted(o_ref: Any, count: Any) -> None:
        count[0] += 1
        o_ref[...] = jnp.full((1, 8), count[0])

    call = pl.pallas_call(
        counted,
        out(4, 8),
        grid=(4,),
        out_specs=ROW,
        scratch_shapes=[pltpu.SMEM((1,), np.int32)],
        **on_cores(2, ("arbitrary",), uninitialized_memory="zero"),
    )
    assert call()[:, 0].tolist() == [1, 2, 3, 4]


def test_parallel_axes_come_first() -> None:
    specs = {
        "in_specs": [pl.BlockSpec((1, 4), lambda i, j: (i, j))],
        "out_specs": pl.BlockSpec((1, 4), lambda i, j: (i, j)),
    }
    call = pl.pallas_call(copied, out(4, 8), grid=(4, 2), **specs, **on_cores(1, ("arbitrary", "parallel")))
    with pytest.raises(ValueError, match=r"(?s)dimension_semantics.*must form a prefix of the grid"):
        call(ROWS)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"num_cores_or_threads": 0}, "must be at least 1, but got 0"),
        (
            {"num_cores_or_threads": 4, "vector_clock_size": 4},
            r"must be greater than the total number of cores/threads",
        ),
    ],
)
def test_a_number_of_cores_that_cannot_be(params: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pltpu.InterpretParams(**params)


def test_the_report_shows_the_stores_of_both_cores() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.program_id(0)] = x_ref[0]

    whole = pl.BlockSpec((4, 8), lambda i: (0, 0))
    call = pl.pallas_call(kernel, out(4, 8), grid=(4,), in_specs=[ROW], out_specs=whole, **on_cores())
    with pytest.raises(pl.PalladioError) as error:
        call(ROWS)
    lines = str(error.value).splitlines()
    assert lines[0].endswith("in two cores, in no order")
    assert [line.strip() for line in lines].count("o_ref[pl.program_id(0)] = x_ref[0]") == 2
    assert lines[1].startswith("  core 1 kernel, grid point (") and any("core 0 kernel" in line for line in lines)


def test_a_check_runs_the_kernel_on_its_cores() -> None:
    call = pl.pallas_call(copied, out(1, 8), grid=(4,), in_specs=[ROW], out_specs=pl.BlockSpec((1, 8)), **on_cores())
    assert [finding.code for finding in pl.check(call, ROWS, schedules=2).findings] == ["global-race"]


def test_a_fetch_races_with_the_store_of_another_core() -> None:
    other = pl.BlockSpec((1, 8), lambda i: (3 - i, 0))
    call = pl.pallas_call(
        copied, out(4, 8), grid=(4,), in_specs=[other], out_specs=ROW, input_output_aliases={0: 0}, **on_cores(4)
    )
    with pytest.raises(pl.PalladioError, match=r"global-race: .* (written|read) by the (store|block fetch) on line"):
        call(ROWS)


def test_an_output_block_holds_nothing_when_a_core_comes_to_it() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] += x_ref[...]

    call = pl.pallas_call(kernel, out(4, 8), grid=(4,), in_specs=[ROW], out_specs=ROW, **on_cores())
    with pytest.raises(pl.PalladioError, match="uninitialized-read: o_ref"):
        call(ROWS)


@pytest.mark.parametrize("size", [3, 5])
def test_ragged_blocks(size: int) -> None:
    block = pl.BlockSpec((1, size), lambda i, j: (i, j))
    grid = (4, pl.cdiv(8, size))
    call = pl.pallas_call(
        copied, out(4, 8), grid=grid, in_specs=[block], out_specs=block, **on_cores(3, ("parallel",) * 2)
    )
    assert np.array_equal(call(ROWS), ROWS)


def test_dynamic_grids() -> None:
    @pl.jit
    def run(x: Any, size: Any) -> Any:
        return pl.pallas_call(copied, out(4, 8), grid=(size,), in_specs=[ROW], out_specs=ROW, **on_cores())(x)

    assert np.array_equal(run(ROWS, np.int32(4)), ROWS)


def test_blocks_of_rows_anywhere() -> None:
    def index_map(i: Any, rows: Any) -> Any:
        return rows[pl.ds(2 * i, 2)], 0

    spec = pl.BlockSpec((pl.Indirect(2), 8), index_map)

    def run(rows: list[int]) -> Any:
        grid_spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1, grid=(2,), in_specs=[pl.BlockSpec((2, 8), lambda i, _: (i, 0))], out_specs=spec
        )
        call = pl.pallas_call(lambda rows, x, o: copied(x, o), out(4, 8), grid_spec=grid_spec, **on_cores())
        return call(np.array(rows, np.int32), ROWS)

    assert np.array_equal(run([3, 0, 2, 1])[[3, 0, 2, 1]], ROWS)
    with pytest.raises(pl.PalladioError, match="global-race"):
        run([3, 0, 3, 1])


def test_scopes_of_cores_are_their_own() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def body(held: Any, arrived: Any) -> None:
            pltpu.async_copy(x_ref, held, arrived).wait()
            o_ref[...] = held[...]

        pl.run_scoped(body, pltpu.VMEM((1, 8), np.int32), pltpu.SemaphoreType.DMA)

    call = pl.pallas_call(kernel, out(4, 8), grid=(4,), in_specs=[ROW], out_specs=ROW, **on_cores(3))
    assert np.array_equal(call(ROWS), ROWS)
