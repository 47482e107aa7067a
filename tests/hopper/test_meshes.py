"""Programs on several meshes in one launch: blocks that run one program beside blocks that run another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.base.errors import PalladioNotImplementedError
from palladio.hopper.compile import compiled
from palladio.hopper.inspect import disassembled, instructions
from palladio.hopper.lowered import Lowered
from tests.hopper.kernels import BF16, F32, error, lowered, normal, on_twin
from tests.hopper.test_messages import said

X = normal(4, 64, dtype=F32)
ONE = plgpu.Mesh(grid=(2,), grid_names=("x",))
TWO = plgpu.Mesh(grid=(2,), grid_names=("x",), num_threads=2, thread_name="wg")


def same_as_evaluated(
    programs: Sequence[tuple[Any, Any]], shape: Sequence[int], *inputs: Any, scratch: Any = ()
) -> None:
    def call(executor: str) -> Any:
        out = pl.ShapeDtypeStruct(tuple(shape), F32)
        return pl.mpmd_map(programs, out, scratch_types=scratch, interpret=executor)

    want = call("reference")(*inputs)
    for found in on_twin(call("hopper-twin"), *inputs):
        assert error(found, want) < 1e-5


def test_each_block_runs_the_program_of_its_mesh() -> None:
    def one(x: Any, out: Any) -> None:
        block = pl.axis_index("x")
        out[block] = x[block] + 1

    def other(x: Any, out: Any) -> None:
        block, group = pl.axis_index("x"), pl.axis_index("wg")

        @pl.when(group == 1)
        def _() -> None:
            out[2 + block] = 2 * x[2 + block]

    same_as_evaluated([(ONE, one), (TWO, other)], X.shape, X)
    same_as_evaluated([(TWO, other), (ONE, one)], X.shape, X)


def test_blocks_of_three_meshes_are_numbered_one_mesh_after_another() -> None:
    def of(first: int, rows: int, columns: int) -> Any:
        def body(x: Any, out: Any) -> None:
            at = first + pl.axis_index(f"row{first}") * columns + pl.axis_index(f"column{first}")
            out[at] = x[at % 4] + at

        names = (f"row{first}", f"column{first}")
        return plgpu.Mesh(grid=(rows, columns), grid_names=names), body

    same_as_evaluated([of(0, 1, 3), of(3, 2, 2), of(7, 3, 2)], (13, 64), X)


def hands_over(x: Any, out: Any, rows: Any, ready: Any) -> None:
    block = pl.axis_index("x")
    rows[block] = x[block] + 1
    pl.semaphore_signal(ready.at[block])


def takes_over(x: Any, out: Any, rows: Any, ready: Any) -> None:
    block = pl.axis_index("x")

    @pl.when(pl.axis_index("wg") == 0)
    def _() -> None:
        pl.semaphore_wait(ready.at[block])
        out[block] = rows[block] * 2


def test_blocks_of_different_programs_meet_in_global_memory() -> None:
    scratch = [plgpu.GMEM((2, 64), F32), plgpu.SemaphoreType.REGULAR((2,))]
    same_as_evaluated([(ONE, hands_over), (TWO, takes_over)], (2, 64), X, scratch=scratch)
    same_as_evaluated([(TWO, takes_over), (ONE, hands_over)], (2, 64), X, scratch=scratch)


def test_semaphores_of_one_name_are_different_parameters() -> None:
    def of(first: int, mesh: plgpu.Mesh) -> Any:
        def body(x: Any, out: Any) -> None:
            block = pl.axis_index("x")

            def handed_over(ready: Any) -> None:
                pl.semaphore_signal(ready)
                pl.semaphore_wait(ready)
                out[first + block] = x[block]

            pl.run_scoped(handed_over, plgpu.SemaphoreType.REGULAR)

        return mesh, body

    programs = [of(0, ONE), of(2, ONE)]
    same_as_evaluated(programs, X.shape, X)
    found = lowered(pl.mpmd_map(programs, pl.ShapeDtypeStruct(X.shape, F32)), X)
    assert [each.name for each in found.parameters] == ["x", "out", "ready", "ready_2"]


def test_a_semaphore_does_not_take_the_name_of_an_array_or_of_a_variable() -> None:
    def body(x: Any, out: Any) -> None:
        block = pl.axis_index("x")

        def array(out: Any) -> None:
            pl.semaphore_signal(out)
            pl.semaphore_wait(out)

        def variable(x: Any) -> None:
            pl.semaphore_signal(x, 1 + block)
            pl.semaphore_wait(x, 1 + block)

        pl.run_scoped(array, plgpu.SemaphoreType.REGULAR)
        pl.run_scoped(variable, plgpu.SemaphoreType.REGULAR)
        out[block] = x[block]

    same_as_evaluated([(ONE, body)], (2, 64), X)
    found = lowered(pl.mpmd_map([(ONE, body)], pl.ShapeDtypeStruct((2, 64), F32)), X)
    names = [each.name for each in found.parameters]
    assert sorted(names) == ["out", "out_2", "x", "x_3"]
    assert "const int x_2 = " in found.text


def copies(x: Any, out: Any, tile: Any, full: Any, *_: Any) -> None:
    block = pl.axis_index("x")
    plgpu.copy_gmem_to_smem(x.at[pl.ds(2 * block, 2)], tile, full)
    plgpu.barrier_wait(full)
    out[pl.ds(2 * block, 2)] = tile[...]


def sums(x: Any, out: Any, _tile: Any, _full: Any, tiles: Any, ready: Any) -> None:
    block, group = pl.axis_index("x"), pl.axis_index("wg")

    @pl.when(group == 0)
    def _() -> None:
        plgpu.set_max_registers(40, action="decrease")
        for row in range(4):
            plgpu.copy_gmem_to_smem(x.at[row], tiles.at[row], ready)

    @pl.when(group == 1)
    def _() -> None:
        plgpu.set_max_registers(232, action="increase")
        plgpu.barrier_wait(ready)
        out[4 + block] = jnp.sum(tiles[...], axis=0) + block


BUFFERS = [
    (plgpu.SMEM @ ONE)((2, 64), F32),
    plgpu.Barrier() @ ONE,
    (plgpu.SMEM @ TWO)((4, 64), F32),
    plgpu.Barrier(num_arrivals=4) @ TWO,
]


def test_blocks_of_each_mesh_have_their_own_shared_memory_and_barriers() -> None:
    same_as_evaluated([(ONE, copies), (TWO, sums)], (6, 64), X, scratch=BUFFERS)


def test_a_block_takes_as_much_shared_memory_as_the_larger_mesh_needs() -> None:
    found = lowered(
        pl.mpmd_map([(ONE, copies), (TWO, sums)], pl.ShapeDtypeStruct((6, 64), F32), scratch_types=BUFFERS), X
    )
    each = [int(size) for size in re.findall(r"// (\d+) bytes of shared memory of blocks", found.text)]
    assert (found.grid, found.threads) == (4, 256)
    assert len(set(each)) == 2 and found.shared_bytes == max(each)


def product(x: Any, y: Any, out: Any, a: Any, b: Any, full: Any, *_: Any) -> None:
    plgpu.copy_gmem_to_smem(x, a, full)
    plgpu.copy_gmem_to_smem(y, b, full)
    plgpu.barrier_wait(full)

    def multiply(acc: Any) -> None:
        plgpu.wgmma(acc, a, b)
        plgpu.wgmma_wait(0)
        out[pl.ds(64 * pl.axis_index("c"), 64)] = acc[...]

    pl.run_scoped(multiply, plgpu.ACC((64, 64)))


def in_a_cluster(x: Any, y: Any, out: Any, a: Any, b: Any, full: Any, tile: Any, come: Any) -> None:
    block, first = pl.axis_index("c"), pl.axis_index("x")
    plgpu.copy_gmem_to_smem(y, tile, come, collective_axes="c")
    plgpu.barrier_wait(come)
    out[128 + 2 * first + block] = jnp.sum(tile[...].astype(F32), axis=0)


def products_beside_clusters() -> Any:
    left = plgpu.Mesh(cluster=(2,), cluster_names=("c",))
    right = plgpu.Mesh(grid=(3,), grid_names=("x",), cluster=(2,), cluster_names=("c",))
    scratch = [(plgpu.SMEM @ left)((64, 64), BF16), (plgpu.SMEM @ left)((64, 64), BF16)]
    scratch += [plgpu.Barrier(num_arrivals=2) @ left, (plgpu.SMEM @ right)((64, 64), BF16), plgpu.Barrier() @ right]
    return [(left, product), (right, in_a_cluster)], scratch


def test_products_run_beside_copies_to_the_blocks_of_a_cluster() -> None:
    programs, scratch = products_beside_clusters()
    same_as_evaluated(programs, (134, 64), normal(64, 64), normal(64, 64, seed=1), scratch=scratch)


def code_of(programs: Any, shape: Sequence[int], scratch: Any, *inputs: Any) -> Lowered:
    return lowered(pl.mpmd_map(programs, pl.ShapeDtypeStruct(tuple(shape), F32), scratch_types=scratch), *inputs)


def test_the_compiler_warns_of_nothing_and_honours_the_registers_of_a_role() -> None:
    programs, scratch = products_beside_clusters()
    cluster = compiled(code_of(programs, (134, 64), scratch, normal(64, 64), normal(64, 64)))
    roles = compiled(code_of([(ONE, copies), (TWO, sums)], (6, 64), BUFFERS, X))
    for each in (cluster, roles):
        assert (each.spills, each.stack, each.warnings) == (0, 0, ())
    assert [name for name in instructions(disassembled(roles.code)) if name.startswith("USETMAXREG")]


def test_a_size_known_only_at_the_call_is_refused() -> None:
    def one(x: Any, out: Any) -> None:
        out[0] = x[0]

    def other(x: Any, out: Any) -> None:
        out[pl.axis_index("y")] = x[1]

    several = plgpu.Mesh(grid=(np.int32(3),), grid_names=("y",))
    call = pl.mpmd_map([(ONE, one), (several, other)], pl.ShapeDtypeStruct((4, 64), F32))
    assert said(call, X, kind=PalladioNotImplementedError)[:4] == [
        "the sizes of several meshes are compiled into a kernel for Hopper",
        "expected: sizes that are known when the kernel is made",
        "got:      1 known only at the call",
        "hint:     make the meshes with sizes as ints, or launch each mesh by itself",
    ]
