"""Asynchronous copies: between global and shared memory, and between the memories of cores.

An asynchronous copy may read its source and write its target at any time from its issue until a wait for it returns.
`eval` copies immediately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import DischargeContext, Discharged, Op, Work
from palladio.ops.references import access
from palladio.ops.references.memory import COMBINERS, Transforms, part_of, require_combinable, require_like, updated
from palladio.types import dtypes
from palladio.types.attributes import Named
from palladio.types.effects import AsyncKind, Effect, Sync, read, write
from palladio.types.types import (
    ACC,
    ANY,
    BARRIER,
    DMA_SEMAPHORE,
    GMEM,
    SEMAPHORE,
    SMEM,
    SYNCHRONISING,
    ArrayType,
    MemorySpace,
    RefType,
    Type,
)

Stacks = tuple[Transforms, ...]
PREDICATE = ArrayType((), dtypes.BOOL)
COUNT = ArrayType((), dtypes.INT32)
_GLOBAL = (GMEM, ANY)
FILLS = ("zeros", "undefined", "promise_in_bounds")


def stays_a_reference(context: DischargeContext, *inputs: Any, **params: Any) -> Discharged:
    """The discharge rule of operations without a meaning on values, because other threads see the memory."""
    raise PalladioTypeError("a reference that other threads reach has no value of its own; it cannot be discharged")


def require_space(what: str, root: Type, *spaces: MemorySpace, argument: str | None = None) -> RefType:
    """The type, which must be a reference in one of these spaces."""
    if not isinstance(root, RefType) or root.space not in spaces:
        wanted = " or ".join(map(str, spaces))
        raise PalladioTypeError(f"{what} must be a reference in {wanted}", argument=argument, got=str(root))
    return root


def require_predicate(predicate: Type) -> None:
    """Refuse a predicate that is not a scalar bool."""
    if predicate != PREDICATE:
        raise PalladioTypeError("a predicate is a scalar bool", got=str(predicate))


def _require_one(what: str, root: Type, part: ArrayType) -> None:
    if part.shape != ():
        raise PalladioTypeError(
            f"one {what} is needed",
            got=f"{root} seen as {part}",
            hint="pick one: ref.at[i]",
            jax=f"Attempting to operate on barrier without indexing, but `num_barriers = {part.size}`"
            if what == "barrier"
            else None,
        )


def require_barrier(barrier: Type, stack: Transforms, indices: Sequence[Type], named: bool | None = False) -> None:
    """Refuse anything but exactly one barrier.

    Args:
        named: whether it must be one of the hardware's named barriers; None allows both.
    """
    root = require_space("a barrier", barrier, BARRIER)
    if named is False and root.attribute(Named) is not None:
        raise PalladioTypeError(
            "threads arrive at a named barrier and wait there in one step, and no copy arrives",
            got=str(root),
            hint="plgpu.barrier_arrive_and_wait(barrier), or a plgpu.Barrier",
        )
    if named and root.attribute(Named) is None:
        raise PalladioTypeError("this is not a named barrier", expected="a plgpu.NamedBarrier reference", got=str(root))
    _require_one("barrier", root, part_of(root, stack, indices))


def _require_data(what: str, root: Type) -> RefType:
    if not isinstance(root, RefType) or root.space in SYNCHRONISING or root.space is ACC:
        raise PalladioTypeError(f"{what} of a copy is a reference to memory", got=str(root))
    return root


def _require_pair(source: RefType, target: RefType, stacks: Stacks, indices: Sequence[Type]) -> ArrayType:
    part = part_of(source, stacks[0], indices)
    into = part_of(target, stacks[1], indices)
    words = f"Expected shapes to match, but src has shape {part.shape} and dst has shape {into.shape}"
    if part.dtype != into.dtype:
        words = f"Expected dtypes to match, but src has dtype {part.dtype} and dst has dtype {into.dtype}"
    elif target.space is SMEM:
        words = f"Expected source shape to be {into.shape}, but got {part.shape}."
    require_like("the source", part, into, jax=words)
    return part


# The reductions of the copy engine (PTX ISA, cp.reduce.async.bulk); multiplication is not one of them.
REDUCTIONS = tuple(kind for kind in COMBINERS if kind != "mul")


def _require_reduction(reduction: str | None, part: ArrayType, argument: str) -> None:
    if reduction is None:
        return
    if reduction not in REDUCTIONS:
        raise PalladioValueError("no such reduction", argument=argument, expected=", ".join(REDUCTIONS), got=reduction)
    require_combinable(reduction, part)


def _copied(source: Any, target: Any, stacks: Stacks, indices: Sequence[Any], outside: Any = None) -> None:
    access.write(target, stacks[1], indices, np.array(access.read(source, stacks[0], indices, outside)))


def _reduced(source: Any, target: Any, stacks: Stacks, indices: Sequence[Any], reduction: str | None) -> None:
    value = np.array(access.read(source, stacks[0], indices))
    updated(target, value, stacks[1], indices, reduction or "set")


# Global to shared memory.


def _load_type(
    source: Type,
    target: Type,
    barrier: Type,
    predicate: Type,
    *indices: Type,
    transforms: Stacks,
    collective: tuple[str, ...],
    fill: str,
) -> Sequence[Type]:
    given = require_space("the source of a copy to shared memory", source, *_GLOBAL, argument="src")
    _require_pair(given, require_space("its target", target, SMEM, argument="dst"), transforms, indices)
    require_barrier(barrier, transforms[2], indices)
    require_predicate(predicate)
    if fill not in FILLS:
        raise PalladioValueError("no such fill", argument="oob_mode", expected=", ".join(FILLS), got=fill)
    return ()


def _load_eval(
    source: Any, target: Any, barrier: Any, predicate: Any, *indices: Any, transforms: Stacks, fill: str, **_: Any
) -> Sequence[Any]:
    if predicate:
        _copied(source, target, transforms, indices, 0 if fill == "zeros" else None)
    return ()


copy_gmem_to_smem = Op(
    "copy_gmem_to_smem",
    "Starts target = source and returns; when the bytes have landed, `barrier` gets one arrival. Where "
    "`predicate: bool[]` is false, the arrival comes without any bytes. What lies outside the source is filled as "
    "`fill` says. With `collective` cluster axes the blocks along them share the copy: each loads a part, and all get "
    "the whole.",
    _load_type,
    _load_eval,
    effects=(read(0), write(1)),
    sync=Sync(issues=AsyncKind.COPY, arrives=("barrier",)),
    work=Work.NONE,
    discharge=stays_a_reference,
    ref_count=3,
)


# Shared to global memory.


def _store_type(
    source: Type, target: Type, predicate: Type, *indices: Type, transforms: Stacks, reduction: str | None
) -> Sequence[Type]:
    given = require_space("the source of a copy to global memory", source, SMEM, argument="src")
    part = _require_pair(given, require_space("its target", target, *_GLOBAL, argument="dst"), transforms, indices)
    require_predicate(predicate)
    _require_reduction(reduction, part, "reduction_op")
    return ()


def _store_eval(
    source: Any, target: Any, predicate: Any, *indices: Any, transforms: Stacks, reduction: str | None
) -> Sequence[Any]:
    if predicate:
        _reduced(source, target, transforms, indices, reduction)
    return ()


def _effects(*inputs: Type, reduction: str | None = None, **_: Any) -> Iterator[Effect]:
    """Of a copy; with a reduction it reads its target too."""
    yield from (read(0), write(1))
    if reduction is not None:
        yield read(1)


copy_smem_to_gmem = Op(
    "copy_smem_to_gmem",
    "Starts target = source, or with `reduction` (add, min, max, …) target = reduction(target, source), and returns. "
    "It joins the group that the next commit_smem_to_gmem_group closes. Nothing happens where `predicate: bool[]` is "
    "false.",
    _store_type,
    _store_eval,
    effects=_effects,
    sync=Sync(issues=AsyncKind.STORE),
    work=Work.NONE,
    discharge=stays_a_reference,
    ref_count=2,
)


def nothing_type(**_: Any) -> Sequence[Type]:
    return ()


def nothing_eval(**_: Any) -> Sequence[Any]:
    return ()


commit_smem_to_gmem_group = Op(
    "commit_smem_to_gmem_group",
    "Closes the group of this thread's copies to global memory since the last one.",
    nothing_type,
    nothing_eval,
    sync=Sync(commits=AsyncKind.STORE),
)


def require_pending(what: str, n: int) -> None:
    """Refuse a number of groups to leave in flight that is not a count."""
    if not isinstance(n, int) or n < 0:
        raise PalladioValueError(f"{what} leaves a static number of groups in flight", argument="n", got=repr(n))


def _wait_type(*, n: int, read_only: bool) -> Sequence[Type]:
    require_pending("wait_smem_to_gmem", n)
    return ()


wait_smem_to_gmem = Op(
    "wait_smem_to_gmem",
    "Waits until at most `n` groups of this thread's copies to global memory are in flight; with `read_only`, until "
    "the others have read their sources.",
    _wait_type,
    nothing_eval,
    sync=Sync(waits=AsyncKind.STORE),
)

commit_smem = Op(
    "commit_smem",
    "Makes this thread's ordinary stores to shared memory visible to asynchronous operations (fence.proxy.async).",
    nothing_type,
    nothing_eval,
    sync=Sync(fences=True),
)

commit_gmem = Op(
    "commit_gmem",
    "Orders ordinary stores to global memory, this thread's and those that it knows of, before asynchronous copies "
    "that take them from there (fence.proxy.async.global).",
    nothing_type,
    nothing_eval,
    sync=Sync(fences=True),
)


# Prefetching, and stores into the shared memory of the cluster.


def _prefetch_type(source: Type, predicate: Type, *indices: Type, transforms: Transforms) -> Sequence[Type]:
    given = require_space("what is prefetched", source, *_GLOBAL, argument="ref")
    part_of(given, transforms, indices)
    require_predicate(predicate)
    return ()


async_prefetch = Op(
    "async_prefetch",
    "Asks for the source to be brought into the second-level cache.",
    _prefetch_type,
    lambda *inputs, **params: (),
    effects=(read(0),),
    sync=Sync(issues=AsyncKind.PREFETCH),
    work=Work.NONE,
    discharge=lambda context, *inputs, **params: Discharged(()),
)


def _store_smem_type(
    target: Type, barrier: Type, value: Type, *indices: Type, transforms: Stacks, reduction: str | None
) -> Sequence[Type]:
    memory = require_space("the target of a store to a block of the cluster", target, SMEM, argument="ref")
    require_barrier(barrier, transforms[1], indices)
    part = part_of(memory, transforms[0], indices)
    require_like("the value", value, part)
    _require_reduction(reduction, part, "atomic")
    return ()


def _store_smem_eval(
    target: Any, barrier: Any, value: Any, *indices: Any, transforms: Stacks, reduction: str | None
) -> Sequence[Any]:
    updated(target, np.asarray(value), transforms[0], indices, reduction or "set")
    return ()


async_store_smem = Op(
    "async_store_smem",
    "Starts target = value, or with `reduction` target = reduction(target, value), in the shared memory of a block of "
    "the cluster and returns; when the bytes have landed, `barrier`, of that block, gets one arrival.",
    _store_smem_type,
    _store_smem_eval,
    effects=(write(0),),
    sync=Sync(issues=AsyncKind.COPY, arrives=("barrier",)),
    work=Work.NONE,
    discharge=stays_a_reference,
    ref_count=2,
)


# Between the memories of cores.


def _require_dma(source: Type, target: Type, semaphores: Sequence[Type], indices: Any, transforms: Stacks) -> ArrayType:
    given, taken = _require_data("the source", source), _require_data("the target", target)
    part = _require_pair(given, taken, transforms, indices)
    for root, stack in zip(semaphores, transforms[2:], strict=True):
        require_space("the semaphore of a copy", root, DMA_SEMAPHORE, SEMAPHORE)
        _require_one("semaphore", root, part_of(root, stack, indices))  # type: ignore[arg-type]
    return part


def _dma_type(
    source: Type,
    target: Type,
    semaphore: Type,
    *indices: Type,
    transforms: Stacks,
    clip: bool = False,
    reduction: str | None = None,
) -> Sequence[Type]:
    part = _require_dma(source, target, (semaphore,), indices, transforms)
    _require_reduction(reduction, part, "reduction")
    return ()


def _dma_eval(
    source: Any,
    target: Any,
    semaphore: Any,
    *indices: Any,
    transforms: Stacks,
    clip: bool = False,
    reduction: str | None = None,
) -> Sequence[Any]:
    _reduced(source, target, transforms, indices, reduction)
    return ()


dma_start = Op(
    "dma_start",
    "Starts target = source, or with `reduction` target = reduction(target, source), element by element, and returns; "
    "when the bytes have landed, `semaphore` counts them. With `clip`, source and target may reach outside of their "
    "arrays: such elements are uninitialised when read and dropped when written.",
    _dma_type,
    _dma_eval,
    effects=_effects,
    sync=Sync(issues=AsyncKind.DMA, arrives=("semaphore",)),
    work=Work.NONE,
    discharge=stays_a_reference,
    ref_count=3,
)


def _remote_dma_type(
    source: Type,
    target: Type,
    semaphore: Type,
    source_semaphore: Type,
    *indices: Type,
    transforms: Stacks,
    clip: bool = False,
) -> Sequence[Type]:
    _require_dma(source, target, (semaphore, source_semaphore), indices, transforms)
    return ()


def _remote_dma_eval(
    source: Any,
    target: Any,
    semaphore: Any,
    source_semaphore: Any,
    *indices: Any,
    transforms: Stacks,
    clip: bool = False,
) -> Sequence[Any]:
    _copied(source, target, transforms, indices)
    return ()


dma_start_remote = Op(
    "dma_start_remote",
    "Starts target = source, the target on another core or device, and returns. When the source has been read, "
    "`source_semaphore`, a semaphore here, counts the bytes; when they have landed, `semaphore`, one there, does.",
    _remote_dma_type,
    _remote_dma_eval,
    effects=(read(0), write(1)),
    sync=Sync(issues=AsyncKind.DMA, arrives=("semaphore", "source_semaphore")),
    work=Work.NONE,
    discharge=stays_a_reference,
    ref_count=4,
)


def _dma_wait_type(semaphore: Type, *indices: Type, transforms: Transforms, amount: int) -> Sequence[Type]:
    root = require_space("the semaphore of a copy", semaphore, DMA_SEMAPHORE, SEMAPHORE)
    _require_one("semaphore", root, part_of(root, transforms, indices))
    return ()


def only_among_threads(name: str) -> Any:
    """The `eval` of operations that wait for other threads: only a machine with several threads can run them."""

    def refuse(*_: Any, **__: Any) -> Sequence[Any]:
        raise PalladioValueError(f"{name} works only among the threads of a kernel", hint="call it inside pl.kernel")

    return refuse


dma_wait = Op(
    "dma_wait",
    "Waits until `semaphore` has counted `amount` bytes and takes them off it.",
    _dma_wait_type,
    only_among_threads("dma_wait"),
    sync=Sync(waits="semaphore"),
    discharge=stays_a_reference,
)
