"""Rows: kernels of several threads, their copies, barriers, semaphores and products on the tensor cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.types import dtypes
from tests.conformance.rows import ALL, NUMBERS, Array, Case, Row, draw, row, wide, wrapped

INT = np.dtype(np.int32)
FLOAT = np.dtype(np.float32)
COPIED = tuple(dtype for dtype in ALL if not dtypes.is_bool(dtype))
F8 = (dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2)
SUMMED = tuple(dtype for dtype in NUMBERS if dtype not in F8)
FULL = plgpu.Barrier()


@dataclass(frozen=True)
class Launched(Case):
    """A case whose kernel is launched on a mesh; `options` are those of `plgpu.kernel`."""

    def call(self, executor: str) -> Any:
        shapes = [
            pl.ShapeDtypeStruct(np.shape(part), dtype) for part, dtype in zip(self.expected, self.outputs, strict=True)
        ]
        options = dict(self.options)
        mesh = options.pop("mesh", None)
        make: Callable[..., Any] = plgpu.kernel if mesh is None else pl.kernel
        extra = {} if mesh is None else {"mesh": mesh}
        return make(self.kernel, tuple(shapes), interpret=executor, **extra, **options)


def threads(count: int) -> dict[str, Any]:
    """Warpgroups of a block."""
    return {"num_threads": count, "thread_name": "wg"}


def store_out(tile: Any, out: Any) -> None:
    """Shared to global memory, to its end."""
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(tile, out)
    plgpu.wait_smem_to_gmem(0)


# Copies.


@row("concurrent", COPIED)
def pipelined_copy(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (24, 8))

    def kernel(x_ref: Any, o_ref: Any, tiles: Any, full: Any) -> None:
        def start(step: Any) -> None:
            slot = step % 2
            plgpu.copy_gmem_to_smem(x_ref.at[pl.ds(step * 4, 4)], tiles.at[slot], full.at[slot])

        start(0)

        @pl.loop(0, 6)
        def _(step: Any) -> None:
            @pl.when(step < 5)
            def _() -> None:
                start(step + 1)

            slot = step % 2
            plgpu.barrier_wait(full.at[slot])
            o_ref[pl.ds(step * 4, 4)] = tiles[slot]

    scratch = [plgpu.SMEM((2, 4, 8), dtype), plgpu.Barrier(num_barriers=2)]
    return Launched(kernel, [x], [wide(x)], [dtype], {"scratch_types": scratch}, 0)


@row("concurrent", COPIED)
def copies_in_and_out(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (8, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, full: Any) -> None:
        part = pl.ds(pl.axis_index("x") * 4, 4)
        plgpu.async_prefetch(x_ref.at[part])
        plgpu.copy_gmem_to_smem(x_ref.at[part], tile, full)
        plgpu.barrier_wait(full)
        store_out(tile, o_ref.at[part])

    options = {"grid": (2,), "grid_names": ("x",), "scratch_types": [plgpu.SMEM((4, 8), dtype), FULL]}
    return Launched(kernel, [x], [wide(x)], [dtype], options, 0)


@row("concurrent", COPIED)
def copy_of_what_was_stored(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (8, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, full: Any) -> None:
        part = pl.ds(pl.axis_index("x") * 4, 4)
        o_ref[part] = x_ref[part]
        plgpu.commit_gmem()
        plgpu.griddepcontrol_wait()
        plgpu.griddepcontrol_launch_dependents()
        plgpu.copy_gmem_to_smem(o_ref.at[part], tile, full)
        plgpu.barrier_wait(full)
        store_out(tile, o_ref.at[part])

    options = {"grid": (2,), "grid_names": ("x",), "scratch_types": [plgpu.SMEM((4, 8), dtype), FULL]}
    return Launched(kernel, [x], [wide(x)], [dtype], options, 0)


@row("concurrent", SUMMED)
def stores_that_add(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (3, 8)), draw(rng, dtype, (3, 8))

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any, tile: Any) -> None:
        tile[...] = x_ref[...]
        store_out(tile, o_ref)
        tile[...] = y_ref[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, o_ref, reduction_op="add", commit_group=False)
        plgpu.commit_smem_to_gmem_group()
        plgpu.wait_smem_to_gmem(0)

    expected = wrapped(wide(x) + wide(y), dtype)
    return Launched(kernel, [x, y], [expected], [dtype], {"scratch_types": [plgpu.SMEM((3, 8), dtype)]})


@row("concurrent", COPIED)
def outside_is_zero(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (6, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x_ref.at[pl.ds(pl.axis_index("x") * 4, 4)], tile, full)
        plgpu.barrier_wait(full)
        o_ref[pl.axis_index("x")] = tile[...]

    options = {"grid": (2,), "grid_names": ("x",), "scratch_types": [plgpu.SMEM((4, 8), dtype), FULL]}
    expected = np.concatenate([wide(x), np.zeros((2, 8), wide(x).dtype)]).reshape(2, 4, 8)
    return Launched(kernel, [x], [expected], [dtype], options, 0)


@row("concurrent", (INT, FLOAT))
def only_where_the_predicate_is_true(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (2, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, full: Any, done: Any) -> None:
        me = pl.axis_index("wg")
        plgpu.copy_gmem_to_smem(x_ref, tile, full, predicate=me == 0)
        plgpu.barrier_wait(full)
        o_ref[me] = tile[1 - me]
        plgpu.barrier_arrive(done, predicate=me == 1)
        plgpu.barrier_wait(done)

    return Launched(
        kernel,
        [x],
        [wide(x)[::-1]],
        [dtype],
        {**threads(2), "scratch_types": [plgpu.SMEM((2, 8), dtype), plgpu.Barrier(num_arrivals=2), FULL]},
    )


@row("concurrent", COPIED)
def a_copy_without_bytes_arrives(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (2, 4, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, full: Any) -> None:
        block = pl.axis_index("c")
        for part in range(2):
            plgpu.copy_gmem_to_smem(x_ref.at[part], tile, full, collective_axes="c", predicate=block < 2 - 2 * part)
            plgpu.barrier_wait(full)
        o_ref[block] = tile[...]

    options = {"cluster": (2,), "cluster_names": ("c",), "scratch_types": [plgpu.SMEM((4, 8), dtype), FULL]}
    return Launched(kernel, [x], [np.stack([wide(x)[0]] * 2)], [dtype], options, 0)


@row("concurrent", COPIED)
def shared_by_the_blocks_of_a_cluster(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (6, 4, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, full: Any) -> None:
        at, block = pl.axis_index("x"), pl.axis_index("c")
        plgpu.copy_gmem_to_smem(x_ref.at[at], tile, full, collective_axes="c")
        plgpu.barrier_wait(full)
        o_ref[at, block] = tile[...]

    options = {"grid": (6,), "grid_names": ("x",), "cluster": (2,), "cluster_names": ("c",)}
    expected = np.stack([wide(x), wide(x)], axis=1)
    return Launched(
        kernel, [x], [expected], [dtype], {**options, "scratch_types": [plgpu.SMEM((4, 8), dtype), FULL]}, 0
    )


@row("concurrent", (INT, FLOAT))
def read_from_another_block(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, ready: Any) -> None:
        block = pl.axis_index("c")
        tile[...] = x_ref[block]
        plgpu.barrier_arrive_and_wait(ready)
        o_ref[block] = plgpu.cluster_ref(tile, {"c": (block + 1) % 4})[...]
        plgpu.barrier_arrive_and_wait(ready)

    scratch = [plgpu.SMEM((8,), dtype), plgpu.ClusterBarrier(collective_axes="c")]
    options = {"cluster": (4,), "cluster_names": ("c",), "scratch_types": scratch}
    return Launched(kernel, [x], [np.roll(wide(x), -1, 0)], [dtype], options, 0)


@row("concurrent", (INT, FLOAT))
def stored_into_another_block(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (3, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, full: Any) -> None:
        block = pl.axis_index("c")
        plgpu.async_store_smem(x_ref[block], tile, full, cluster_dim="c", cluster_idx=(block + 1) % 3)
        plgpu.barrier_wait(full)
        o_ref[block] = tile[...]

    options = {"cluster": (3,), "cluster_names": ("c",), "scratch_types": [plgpu.SMEM((8,), dtype), FULL]}
    return Launched(kernel, [x], [np.roll(wide(x), 1, 0)], [dtype], options, 0)


def on_cores(*scratch: Any) -> dict[str, Any]:
    """Two cores of a chip."""
    return {"mesh": pltpu.TensorCoreMesh(axis_name="core", num_cores=2), "scratch_types": scratch}


@row("concurrent", (INT, FLOAT))
def from_memory_to_a_core_and_back(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (2, 8))

    def kernel(x_ref: Any, o_ref: Any, mine: Any, done: Any) -> None:
        core = pl.axis_index("core")
        pltpu.async_copy(x_ref.at[core], mine, done).wait()
        pltpu.async_copy(mine, o_ref.at[1 - core], done).wait()

    options = on_cores(pltpu.VMEM((8,), dtype), pltpu.SemaphoreType.DMA)
    return Launched(kernel, [x], [wide(x)[::-1]], [dtype], options, 0)


@row("concurrent", (INT, FLOAT))
def from_core_to_core(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (2, 8))

    def kernel(x_ref: Any, o_ref: Any, mine: Any, come: Any, done: Any, sent: Any, received: Any) -> None:
        core = pl.axis_index("core")
        pltpu.async_copy(x_ref.at[core], mine, done).wait()
        pltpu.async_remote_copy(mine, come, sent, received, {"core": 1 - core}).wait()
        pltpu.async_copy(come, o_ref.at[core], done).wait()

    buffers = [pltpu.VMEM((8,), dtype), pltpu.VMEM((8,), dtype)]
    return Launched(kernel, [x], [wide(x)[::-1]], [dtype], on_cores(*buffers, *[pltpu.SemaphoreType.DMA] * 3), 0)


# Barriers, semaphores, threads.


@row("concurrent", (INT, FLOAT))
def one_thread_gives_another_takes(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (6, 8))

    def kernel(x_ref: Any, o_ref: Any, tiles: Any, full: Any, empty: Any) -> None:
        @pl.when(pl.axis_index("wg") == 0)
        def _() -> None:
            plgpu.set_max_registers(40, action="decrease")

            @pl.loop(0, 6)
            def _(step: Any) -> None:
                @pl.when(step >= 2)
                def _() -> None:
                    plgpu.barrier_wait(empty.at[step % 2])

                plgpu.copy_gmem_to_smem(x_ref.at[step], tiles.at[step % 2], full.at[step % 2])

        @pl.when(pl.axis_index("wg") == 1)
        def _() -> None:
            plgpu.set_max_registers(232, action="increase")

            @pl.loop(0, 6)
            def _(step: Any) -> None:
                plgpu.barrier_wait(full.at[step % 2])
                o_ref[step] = tiles[step % 2] * 2

                @pl.when(step < 4)
                def _() -> None:
                    plgpu.barrier_arrive(empty.at[step % 2])

    pair = plgpu.Barrier(num_barriers=2)
    options = {**threads(2), "scratch_types": [plgpu.SMEM((2, 8), dtype), pair, pair]}
    return Launched(kernel, [x], [wide(x) * 2], [dtype], options)


@row("concurrent", (INT, FLOAT))
def tested_until_it_has_come(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (8,))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, full: Any) -> None:
        @pl.when(pl.axis_index("wg") == 0)
        def _() -> None:
            pl.while_loop(lambda come: ~come, lambda _: plgpu.barrier_test(full), np.bool_(False))
            o_ref[...] = tile[...]

        @pl.when(pl.axis_index("wg") == 1)
        def _() -> None:
            tile[...] = x_ref[...]
            plgpu.barrier_arrive(full)

    return Launched(
        kernel, [x], [wide(x)], [dtype], {**threads(2), "scratch_types": [plgpu.SMEM((8,), dtype), FULL]}, 0
    )


@row("concurrent", (INT, FLOAT))
def named_barriers(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (2, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, met: Any) -> None:
        me = pl.axis_index("wg")
        tile[me] = x_ref[me]
        plgpu.barrier_arrive_and_wait(met)
        o_ref[me] = tile[1 - me]

    scratch = [plgpu.SMEM((2, 8), dtype), plgpu.NamedBarrier(num_arrivals=2)]
    return Launched(kernel, [x], [wide(x)[::-1]], [dtype], {**threads(2), "scratch_types": scratch}, 0)


@row("concurrent", (INT, FLOAT))
def semaphores_between_blocks(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4, 8))

    def kernel(x_ref: Any, o_ref: Any, count_ref: Any, turn: Any) -> None:
        block = pl.axis_index("x")

        @pl.when(block > 0)
        def _() -> None:
            plgpu.semaphore_wait(turn, block, decrement=False)
            o_ref[block] = o_ref[block - 1] + x_ref[block]

        @pl.when(block == 0)
        def _() -> None:
            o_ref[0] = x_ref[0]

        plgpu.semaphore_signal(turn)

        @pl.when(block == 3)
        def _() -> None:
            plgpu.semaphore_wait(turn, 4, decrement=False)
            count_ref[...] = plgpu.semaphore_read(turn)
            plgpu.semaphore_wait(turn, 4)

    options = {"grid": (4,), "grid_names": ("x",), "scratch_types": [plgpu.SemaphoreType.REGULAR]}
    sums = np.cumsum(wide(x), axis=0)
    return Launched(kernel, [x], [sums, np.int32(4).astype(object)], [dtype, INT], options, 2)


@row("concurrent", (INT, FLOAT))
def a_scope_that_threads_share(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (2, 8))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        me = pl.axis_index("wg")

        def body(tile: Any, met: Any) -> None:
            tile[me] = x_ref[me]
            plgpu.barrier_arrive_and_wait(met)
            o_ref[me] = tile[0] + tile[1]

        pl.run_scoped(body, plgpu.SMEM((2, 8), dtype), plgpu.Barrier(num_arrivals=2), collective_axes="wg")

    total = wide(x).sum(axis=0)
    return Launched(kernel, [x], [np.stack([total, total])], [dtype], threads(2), 2)


@row("concurrent", (INT, FLOAT))
def a_grid_known_at_the_call(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (5, 8))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.axis_index("x")] = x_ref[pl.axis_size("x") - 1 - pl.axis_index("x")]

    options = {"grid": (np.asarray(5, np.int32),), "grid_names": ("x",)}
    return Launched(kernel, [x], [wide(x)[::-1]], [dtype], options, 0)


@row("concurrent", (INT, FLOAT))
def the_warps_of_a_thread(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4, 8))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            o_ref[3 - warp] = x_ref[warp]

    return Launched(kernel, [x], [wide(x)[::-1]], [dtype], {}, 0)


@row("concurrent", (INT, FLOAT))
def warps_that_wait_for_each_other(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (3, 4, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, met: Any) -> None:
        @pl.loop(0, 3)
        def _(step: Any) -> None:
            @plgpu.warp_map
            def _(warp: Any) -> None:
                tile[warp] = x_ref[step, warp]
                plgpu.barrier_arrive_and_wait(met)
                o_ref[step, warp] = tile[(warp + 1) % 4]
                plgpu.barrier_arrive_and_wait(met)

    scratch = [plgpu.SMEM((4, 8), dtype), plgpu.Barrier(num_arrivals=4)]
    return Launched(kernel, [x], [np.roll(wide(x), -1, 1)], [dtype], {"scratch_types": scratch}, 0)


@row("concurrent", (INT, FLOAT))
def a_scope_that_the_blocks_of_a_cluster_enter_again(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4, 2, 8))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        block = pl.axis_index("c")

        @pl.loop(0, 4)
        def _(step: Any) -> None:
            def body(tile: Any, met: Any) -> None:
                tile[...] = x_ref[step, block]
                plgpu.barrier_arrive_and_wait(met)
                o_ref[step, block] = plgpu.cluster_ref(tile, {"c": 1 - block})[...]
                plgpu.barrier_arrive_and_wait(met)

            met = plgpu.ClusterBarrier(collective_axes="c")
            pl.run_scoped(body, plgpu.SMEM((8,), dtype), met, collective_axes="wg")

    options = {"cluster": (2,), "cluster_names": ("c",), **threads(1)}
    return Launched(kernel, [x], [wide(x)[:, ::-1]], [dtype], options, 0)


@row("concurrent", (INT, FLOAT))
def a_cluster_known_at_the_call(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (3, 8))

    def kernel(x_ref: Any, o_ref: Any, tile: Any, ready: Any) -> None:
        block = pl.axis_index("c")
        tile[...] = x_ref[block]
        plgpu.barrier_arrive_and_wait(ready)
        o_ref[block] = plgpu.cluster_ref(tile, {"c": pl.axis_size("c") - 1 - block})[...]
        plgpu.barrier_arrive_and_wait(ready)

    scratch = [plgpu.SMEM((8,), dtype), plgpu.ClusterBarrier(collective_axes="c")]
    options = {"cluster": (np.asarray(3, np.int32),), "cluster_names": ("c",), "scratch_types": scratch}
    return Launched(kernel, [x], [wide(x)[::-1]], [dtype], options, 0)


@row("concurrent", (INT, FLOAT))
def programs_on_two_meshes(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (2, 8))
    one = plgpu.Mesh(grid=(2,), grid_names=("x",))
    other = plgpu.Mesh(grid=(2,), grid_names=("x",), **threads(2))

    def gives(x_ref: Any, o_ref: Any, rows: Any, ready: Any, tile: Any, full: Any) -> None:
        block = pl.axis_index("x")
        rows[block] = x_ref[block] * 2
        pl.semaphore_signal(ready.at[block])

    def takes(x_ref: Any, o_ref: Any, rows: Any, ready: Any, tile: Any, full: Any) -> None:
        block, me = pl.axis_index("x"), pl.axis_index("wg")

        @pl.when(me == 0)
        def _() -> None:
            plgpu.copy_gmem_to_smem(x_ref.at[1 - block], tile, full)

        @pl.when(me == 1)
        def _() -> None:
            pl.semaphore_wait(ready.at[block])
            plgpu.barrier_wait(full)
            o_ref[block] = rows[block] + tile[...]

    shared = [plgpu.GMEM((2, 8), dtype), plgpu.SemaphoreType.REGULAR((2,))]
    options = {"mesh": [one, other], "scratch_types": [*shared, (plgpu.SMEM @ other)((8,), dtype), FULL @ other]}
    return Launched([gives, takes], [x], [2 * wide(x) + wide(x)[::-1]], [dtype], options, 2)  # type: ignore[arg-type]


# The tensor cores.

M, N, K = 128, 16, 64
"""Of a product. Two warpgroups have 64 rows each, and rows in shared memory 32 bytes."""


def product(
    name: str,
    dtype: Any,
    acc: Any = jnp.float32,
    *,
    right: Any = None,
    left_in_registers: bool = False,
    transposed: bool = False,
    slack: float = 1,
) -> Row:
    """`a @ b` in two steps along k."""
    left, other, total = (dtypes.canonical(each) for each in (dtype, dtype if right is None else right, acc))
    # The tensor cores take operands of 8 and 32 bits with k as their last axis only.
    turned = transposed or other.itemsize != 2

    def make(rng: np.random.Generator, out: np.dtype) -> Case:
        low = 0 if left == np.uint8 else -3
        a, b = draw(rng, left, (M, K), low), draw(rng, other, (K, N), low)
        if left == FLOAT:  # the tensor cores round float32 to 11 bits: these have no more
            a, b = (each.astype(dtypes.BFLOAT16).astype(FLOAT) for each in (a, b))
        given = [a.T.copy() if transposed else a, b.T.copy() if turned else b]

        def kernel(a_ref: Any, b_ref: Any, o_ref: Any, a_tile: Any, b_tile: Any, accumulator: Any, full: Any) -> None:
            @pl.loop(0, 2)
            def _(step: Any) -> None:
                along = pl.ds(step * (K // 2), K // 2)
                rows, columns = (along, slice(None)) if transposed else (slice(None), along)
                plgpu.copy_gmem_to_smem(a_ref.at[rows, columns], a_tile, full)
                plgpu.copy_gmem_to_smem(b_ref.at[:, along] if turned else b_ref.at[along], b_tile, full)
                plgpu.barrier_wait(full)
                operand = a_tile[...] if left_in_registers else a_tile
                plgpu.wgmma(accumulator, operand.T if transposed else operand, b_tile.T if turned else b_tile)
                plgpu.wgmma_wait(0)

            o_ref[...] = plgpu.layout_cast(accumulator[...], plgpu.Layout.WGMMA)

        left_tile = plgpu.SMEM((K // 2, M) if transposed else (M, K // 2), left)
        right_tile = plgpu.SMEM((N, K // 2) if turned else (K // 2, N), other)
        scratch = [left_tile, right_tile, plgpu.ACC((M, N), total)]
        options = {"scratch_types": [*scratch, plgpu.Barrier(num_arrivals=2)]}
        return Launched(kernel, given, [wide(a) @ wide(b)], [out], options, slack)

    return Row("tensor_cores", name, (total,), make)


PRODUCTS = [
    product("bf16", jnp.bfloat16),
    product("f16", jnp.float16),
    product("f16_in_f16", jnp.float16, jnp.float16, slack=2),
    product("f32", jnp.float32),
    product("e4m3fn", jnp.float8_e4m3fn),
    product("e5m2", jnp.float8_e5m2),
    product("e4m3fn_by_e5m2", jnp.float8_e4m3fn, right=jnp.float8_e5m2),
    product("e5m2_by_e4m3fn_in_f16", jnp.float8_e5m2, jnp.float16, right=jnp.float8_e4m3fn, slack=2),
    product("i8", jnp.int8, jnp.int32),
    product("u8", jnp.uint8, jnp.int32),
    product("left_in_registers", jnp.bfloat16, left_in_registers=True),
    product("transposed", jnp.bfloat16, transposed=True),
]


def on_tiles(
    name: str, body: Callable[..., None], expected: Callable[[Array, Array], Array], n: int = N, **options: Any
) -> Row:
    """`body(a_tile, b_tile, o_ref, *scratch)` on f16 operands that lie in shared memory."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        a, b = draw(rng, dtypes.FLOAT16, (M, K)), draw(rng, dtypes.FLOAT16, (K, n))

        def kernel(a_ref: Any, b_ref: Any, o_ref: Any, a_tile: Any, b_tile: Any, full: Any, *scratch: Any) -> None:
            me = pl.axis_index("wg")
            plgpu.copy_gmem_to_smem(a_ref, a_tile, full, predicate=me == 0)
            plgpu.copy_gmem_to_smem(b_ref, b_tile, full, predicate=me == 0)
            plgpu.barrier_wait(full)
            body(a_tile, b_tile, o_ref, *scratch)

        count = options.get("count", 1)
        arrivals = plgpu.Barrier(num_arrivals=2 * count)
        tiles = [plgpu.SMEM((M, K), jnp.float16), plgpu.SMEM((K, n), jnp.float16), arrivals]
        given = {**threads(count), "scratch_types": [*tiles, *options.get("scratch", ())]}
        return Launched(kernel, [a, b], [expected(wide(a), wide(b))], [dtype], given)

    return Row("tensor_cores", name, (FLOAT,), make)


def _in_halves(a: Any, b: Any, out: Any, acc: Any) -> None:
    for half in (0, N):
        plgpu.wgmma(acc.at[:, half : half + N], a, b.at[:, half : half + N])
    out[:, :N] = acc[:, :N]
    out[:, N:] = plgpu.wgmma_accumulator_load(acc.at[:, N:], wait_n=0)


def _in_run_state(a: Any, b: Any, out: Any) -> None:
    def body(acc: Any) -> None:
        plgpu.wgmma(acc, a, b)

    out[...] = pl.run_state(body)(plgpu.ACC.init(jnp.ones((M, N), jnp.float32)))


def _in_a_loop(a: Any, b: Any, out: Any) -> None:
    def body(acc: Any) -> Any:
        @pl.loop(0, 4)
        def _(step: Any) -> None:
            @pl.when(step % 2 == 0)
            def _() -> None:
                plgpu.wgmma(acc, a, b)

        return acc[...]

    out[...] = pl.run_scoped(body, plgpu.ACC((M, N)))


def _in_each_thread(a: Any, b: Any, out: Any) -> None:
    me = pl.axis_index("wg")
    half = M // 2

    def body(tile: Any, acc: Any) -> None:
        plgpu.wgmma(acc, a.at[pl.ds(me * half, half)], b)
        tile[pl.ds(me * half, half)] = acc[...]
        out[pl.ds(me * half, half)] = tile[pl.ds(me * half, half)]

    tile = plgpu.SMEM((M, N), jnp.float32)
    pl.run_scoped(body, tile, plgpu.ACC((half, N)), collective_axes="wg")


def _set_then_added_to(a: Any, b: Any, out: Any, acc: Any) -> None:
    acc[...] = jnp.full((M, N), 2, jnp.float32)
    plgpu.wgmma(acc, a, b)
    plgpu.wgmma(acc, a, b)
    plgpu.wgmma_wait(1)
    out[...] = acc[...]


ACCUMULATORS = [
    on_tiles("parts_of_an_accumulator", _in_halves, lambda a, b: a @ b, 2 * N, scratch=[plgpu.ACC((M, 2 * N))]),
    on_tiles("an_accumulator_in_run_state", _in_run_state, lambda a, b: a @ b + 1),
    on_tiles("an_accumulator_in_a_loop", _in_a_loop, lambda a, b: 2 * (a @ b)),
    on_tiles("an_accumulator_of_each_thread", _in_each_thread, lambda a, b: a @ b, count=2),
    on_tiles("set_then_added_to", _set_then_added_to, lambda a, b: 2 * (a @ b) + 2, scratch=[plgpu.ACC((M, N))]),
]


@row("tensor_cores", (FLOAT,))
def mma(rng: np.random.Generator, dtype: np.dtype) -> Case:
    a, b = draw(rng, dtypes.BFLOAT16, (M, K)), draw(rng, dtypes.BFLOAT16, (K, N))

    def kernel(a_ref: Any, b_ref: Any, o_ref: Any) -> None:
        o_ref[...] = plgpu.mma(jnp.ones((M, N), jnp.float32), a_ref[...], b_ref[...])

    return Launched(kernel, [a, b], [wide(a) @ wide(b) + 1], [dtype])
