"""Small kernels for `tools.mutants`, one for each synchronisation idiom of threads and blocks besides pipelines:
atomics, flags, semaphores, locks, memory of the cluster, registers, reductions, meshes that run different programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax

Array = np.ndarray[Any, Any]
Ref = Any

F32, I32 = np.float32, np.int32
BLOCKS, ROW = 3, 8
ROWS = np.arange(1, 1 + BLOCKS * ROW, dtype=F32).reshape(BLOCKS, ROW)
COUNTER = plgpu.SemaphoreType.REGULAR


def _launched(body: Callable[..., None], *out: Any, args: tuple[Any, ...] = (), **options: Any) -> Callable[[], Any]:
    """A call of a kernel, with the first of its outputs as the result."""

    def run() -> Any:
        types = [pl.ShapeDtypeStruct(each.shape, each.dtype) for each in out]
        return plgpu.kernel(body, types, **options)(*args)[0]

    return run


def _grid(blocks: int = BLOCKS) -> dict[str, Any]:
    return {"grid": (blocks,), "grid_names": ("block",)}


def tickets() -> Callable[[], Any]:
    """Each block sums its row and takes a ticket; the block with the last ticket adds up all sums."""

    def body(x: Ref, zero: Ref, total: Ref, sums: Ref, counts: Ref) -> None:
        block = pl.axis_index("block")
        sums[block] = jnp.sum(x[block])
        before = plgpu.atomic_add(counts, 1, 1)

        @pl.when(before == BLOCKS - 1)
        def _() -> None:
            total[...] = jnp.sum(sums[...])

    out = np.zeros((), F32), np.zeros(BLOCKS, F32), np.zeros(2, I32)
    return _launched(body, *out, args=(ROWS, np.zeros(2, I32)), input_output_aliases={1: 2}, **_grid())


def flags() -> Callable[[], Any]:
    """Blocks raise flags after their rows; the last block waits for the flag of each other block in order."""

    def body(x: Ref, zero: Ref, total: Ref, rows: Ref, raised: Ref) -> None:
        block = pl.axis_index("block")

        @pl.when(block < BLOCKS - 1)
        def _() -> None:
            rows[block] = 2 * x[block]
            plgpu.atomic_or(raised, block, 1)

        @pl.when(block == BLOCKS - 1)
        def _() -> None:
            rows[block] = x[block]
            for other in range(BLOCKS - 1):
                lax.while_loop(
                    lambda seen: seen == 0, lambda _, other=other: plgpu.atomic_or(raised, other, 0), jnp.int32(0)
                )
            total[...] = rows[0] + rows[1]

    out = np.zeros(ROW, F32), np.zeros((BLOCKS, ROW), F32), np.zeros(BLOCKS, I32)
    return _launched(body, *out, args=(ROWS, np.zeros(BLOCKS, I32)), input_output_aliases={1: 2}, **_grid())


def chain() -> Callable[[], Any]:
    """Each block copies the sum that the previous block stored, adds its row, and signals the next by a semaphore."""

    def body(x: Ref, sums: Ref, shared: Ref, arrived: Ref, ready: Ref) -> None:
        block = pl.axis_index("block")

        @pl.when(block == 0)
        def _() -> None:
            sums[0] = x[0]

        @pl.when(block > 0)
        def _() -> None:
            plgpu.semaphore_wait(ready.at[block - 1])
            plgpu.copy_gmem_to_smem(sums.at[block - 1], shared, arrived)
            plgpu.barrier_wait(arrived)
            sums[block] = shared[...] + x[block]

        @pl.when(block < BLOCKS - 1)
        def _() -> None:
            plgpu.commit_gmem()
            plgpu.semaphore_signal(ready.at[block])

    scratch = [plgpu.SMEM((ROW,), F32), plgpu.Barrier(), COUNTER((BLOCKS - 1,))]
    return _launched(body, ROWS, args=(ROWS,), scratch_types=scratch, **_grid())


def locked() -> Callable[[], Any]:
    """A semaphore of one token guards a sum; a second one counts the blocks that are done."""

    def body(x: Ref, zero: Ref, total: Ref, lock: Ref, done: Ref) -> None:
        block = pl.axis_index("block")

        @pl.when(block == 0)
        def _() -> None:
            plgpu.semaphore_signal(lock)

        plgpu.semaphore_wait(lock)
        total[...] = total[...] + x[block]
        plgpu.semaphore_signal(lock)
        plgpu.semaphore_signal(done)

        @pl.when(block == 0)
        def _() -> None:
            plgpu.semaphore_wait(done, BLOCKS)
            plgpu.semaphore_wait(lock)

    args = ROWS, np.zeros(ROW, F32)
    return _launched(body, args[1], args=args, input_output_aliases={1: 0}, scratch_types=[COUNTER, COUNTER], **_grid())


def exchanged() -> Callable[[], Any]:
    """Blocks of a cluster pass rows in a ring, each into the memory of the next block, and add up the received rows."""

    def body(x: Ref, out: Ref, rows: Ref, full: Ref, met: Ref) -> None:
        me = pl.axis_index("c")
        following = lax.rem(me + 1, BLOCKS)
        total = x[me]
        plgpu.barrier_arrive_and_wait(met)
        for step in range(BLOCKS - 1):
            moved = x[me] if step == 0 else rows[step - 1]
            plgpu.async_store_smem(moved, rows.at[step], full.at[step], cluster_idx=following, cluster_dim="c")
            plgpu.barrier_wait(full.at[step])
            total = total + rows[step]
        out[me] = total
        plgpu.barrier_arrive_and_wait(met)

    scratch = [
        plgpu.SMEM((BLOCKS - 1, ROW), F32),
        plgpu.Barrier(num_barriers=BLOCKS - 1),
        plgpu.ClusterBarrier(collective_axes="c"),
    ]
    return _launched(body, ROWS, args=(ROWS,), scratch_types=scratch, cluster=(BLOCKS,), cluster_names=("c",))


def peers() -> Callable[[], Any]:
    """Blocks of a cluster write and read each other's memory by ordinary accesses, with a barrier in between."""

    def body(x: Ref, out: Ref, mine: Ref, theirs: Ref, met: Ref) -> None:
        me = pl.axis_index("c")
        plgpu.cluster_ref(theirs, {"c": 1 - me})[...] = 2 * x[me]
        mine[...] = x[me]
        plgpu.barrier_arrive_and_wait(met)
        out[me] = theirs[...] + plgpu.cluster_ref(mine, {"c": 1 - me})[...]
        plgpu.barrier_arrive_and_wait(met)

    memory = plgpu.SMEM((ROW,), F32)
    scratch = [memory, memory, plgpu.ClusterBarrier(collective_axes="c")]
    return _launched(body, ROWS[:2], args=(ROWS,), scratch_types=scratch, cluster=(2,), cluster_names=("c",))


def registers() -> Callable[[], Any]:
    """A copying warpgroup returns registers, for which the two computing ones wait."""

    def body(x: Ref, out: Ref, rows: Ref, full: Ref) -> None:
        group = pl.axis_index("group")

        @pl.when(group == 2)
        def _() -> None:
            plgpu.set_max_registers(40, action="decrease")
            for row in range(2):
                plgpu.copy_gmem_to_smem(x.at[row], rows.at[row], full.at[row])

        @pl.when(group < 2)
        def _() -> None:
            plgpu.set_max_registers(232, action="increase")
            plgpu.barrier_wait(full.at[group])
            out[group] = 2 * rows[group]

    scratch = [plgpu.SMEM((2, ROW), F32), plgpu.Barrier(num_barriers=2)]
    return _launched(body, ROWS[:2], args=(ROWS,), scratch_types=scratch, num_threads=3, thread_name="group")


def reductions() -> Callable[[], Any]:
    """One block stores zeros, to which all add their rows by copies; the last block reads the sum."""

    def body(x: Ref, out: Ref, total: Ref, shared: Ref, zeroed: Ref, added: Ref) -> None:
        block = pl.axis_index("block")
        shared[...] = x[block]
        plgpu.commit_smem()

        @pl.when(block == 0)
        def _() -> None:
            total[...] = 0 * x[0]
            plgpu.commit_gmem()
            plgpu.semaphore_signal(zeroed, BLOCKS)

        plgpu.semaphore_wait(zeroed)
        plgpu.copy_smem_to_gmem(shared, total, reduction_op="add")
        plgpu.wait_smem_to_gmem(0)
        plgpu.semaphore_signal(added)

        @pl.when(block == BLOCKS - 1)
        def _() -> None:
            plgpu.semaphore_wait(added, BLOCKS)
            out[...] = total[...] + 1

    row = np.zeros(ROW, F32)
    scratch = [plgpu.SMEM((ROW,), F32), COUNTER, COUNTER]
    return _launched(body, row, row, args=(ROWS,), scratch_types=scratch, **_grid())


def programs() -> Callable[[], Any]:
    """`mpmd_map`: one program copies rows into slots, another adds them up; a slot is free after it has been read."""
    maker, taker = pl.CoreMesh("maker", 1), pl.CoreMesh("taker", 1)
    counter = pltpu.SemaphoreType.REGULAR

    def make(x: Ref, out: Ref, slots: Ref, full: Ref, free: Ref, moved: Ref) -> None:
        @pl.loop(0, BLOCKS)
        def _(row: Any) -> None:
            slot = lax.rem(row, 2)

            @pl.when(row >= 2)
            def _() -> None:
                pl.semaphore_wait(free.at[slot])

            pltpu.async_copy(x.at[row], slots.at[slot], moved).wait()
            pl.semaphore_signal(full.at[slot], device_id={"taker": 0})

    def take(x: Ref, out: Ref, slots: Ref, full: Ref, free: Ref, moved: Ref) -> None:
        out[...] = jnp.zeros((ROW,), F32)

        @pl.loop(0, BLOCKS)
        def _(row: Any) -> None:
            slot = lax.rem(row, 2)
            pl.semaphore_wait(full.at[slot])
            out[...] = out[...] + slots[slot]

            @pl.when(row < BLOCKS - 2)
            def _() -> None:
                pl.semaphore_signal(free.at[slot], device_id={"maker": 0})

    scratch = {
        "slots": pltpu.HBM((2, ROW), F32),
        "full": counter((2,)) @ taker,
        "free": counter((2,)) @ maker,
        "moved": pltpu.SemaphoreType.DMA @ maker,
    }
    call = pl.mpmd_map([(maker, make), (taker, take)], pl.ShapeDtypeStruct((ROW,), F32), scratch_types=scratch)
    return lambda: call(ROWS)


TOTAL = ROWS.astype(np.float64).sum(0)

IDIOMS: dict[str, tuple[Callable[[], Callable[[], Any]], Array]] = {
    "atomics: tickets": (tickets, TOTAL.sum()),
    "atomics: flags": (flags, 2 * (ROWS[0] + ROWS[1]).astype(np.float64)),
    "semaphores: a chain of blocks": (chain, np.cumsum(ROWS.astype(np.float64), 0)),
    "a lock": (locked, TOTAL),
    "DSMEM: rows passed round": (exchanged, np.broadcast_to(TOTAL, ROWS.shape)),
    "DSMEM: two peers": (peers, 3 * ROWS[1::-1].astype(np.float64)),
    "set_max_registers": (registers, 2 * ROWS[:2].astype(np.float64)),
    "reductions": (reductions, TOTAL + 1),
    "mpmd_map": (programs, TOTAL),
}
"""Each kernel with its result in float64."""
