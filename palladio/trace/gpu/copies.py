"""Asynchronous copies in a kernel: `copy_gmem_to_smem`, `copy_smem_to_gmem`, and their waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.base.arguments import axis_names
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.bind import bind
from palladio.ops.threads import copy as ops
from palladio.trace.gpu.clusters import MulticastRef
from palladio.trace.grid import require_cluster_axes
from palladio.trace.reference import Reference, fitted, reached, require_reference
from palladio.trace.trace import require_trace


class OOBFillMode(Enum):
    """The value of elements outside the source of a copy: zeros, unspecified, or a guarantee that there are none."""

    ZEROS = "zeros"
    UNDEFINED = "undefined"
    PROMISE_IN_BOUNDS = "promise_in_bounds"


def predicate_of(predicate: Any) -> Any:
    """A predicate as a scalar bool; None is true."""
    if predicate is None:
        return np.bool_(True)
    if isinstance(predicate, (bool, np.bool_)):
        return np.bool_(predicate)
    found = convert.array_type(predicate)
    if found != ops.PREDICATE:
        raise PalladioTypeError("a predicate is a scalar bool", argument="predicate", got=str(found))
    return predicate


def one_barrier(barrier: Any) -> Reference:
    """The reference to one barrier: itself, or the element of an array of one."""
    reference = require_reference(barrier, "barrier")
    if reference.shape and all(size == 1 for size in reference.shape):
        return reference.at[(0,) * len(reference.shape)]
    return reference


def copy_gmem_to_smem(
    src: Any,
    dst: Any,
    barrier: Any = None,
    *,
    collective_axes: str | Sequence[str] | None = None,
    leader_tracked: Any = None,
    oob_mode: OOBFillMode | None = None,
    predicate: Any = None,
) -> None:
    """Start copying global memory to shared memory (TMA) and return immediately.

    Args:
        src, dst: references `dtype[shape]` of one shape and dtype.
        barrier: one barrier; it gets one arrival when the bytes have landed.
        collective_axes: cluster axes along which the blocks share the copy: every block calls it, each loads a part,
            and all get the whole; the barrier of each gets one arrival.
        oob_mode: the value of elements outside the source, zeros by default.
        predicate: a scalar bool; where it is false nothing is copied, but the barrier still gets its arrival.

    Raises:
        PalladioTypeError: not a reference, or of another dtype; no barrier.
        PalladioValueError: another shape.
    """
    if leader_tracked is not None:
        raise PalladioValueError("leader-tracked copies are Blackwell's", argument="leader_tracked", got=leader_tracked)
    if barrier is None:
        raise PalladioTypeError(
            "a copy to shared memory arrives at a barrier", argument="barrier", hint="allocate one: plgpu.Barrier()"
        )
    shared = axis_names(collective_axes, "collective_axes")
    require_cluster_axes(shared, "collective_axes")
    references = require_reference(src, "src"), require_reference(dst, "dst"), one_barrier(barrier)
    roots, stacks, operands = reached(*references)
    fill = OOBFillMode.ZEROS if oob_mode is None else oob_mode
    if not isinstance(fill, OOBFillMode):
        raise PalladioTypeError(
            "what lies outside the source is described by an OOBFillMode",
            argument="oob_mode",
            expected="such as plgpu.OOBFillMode.ZEROS",
            got=repr(oob_mode),
        )
    bind(
        ops.copy_gmem_to_smem,
        *roots,
        predicate_of(predicate),
        *operands,
        transforms=stacks,
        collective=shared,
        fill=fill.value,
    )


def copy_smem_to_gmem(
    src: Any, dst: Any, predicate: Any = None, *, commit_group: bool = True, reduction_op: str | None = None
) -> None:
    """Start copying shared memory to global memory (TMA) and return immediately.

    Args:
        src, dst: references `dtype[shape]` of one shape and dtype; a `multicast_ref` as `dst` is stored to everywhere.
        predicate: a scalar bool; where it is false nothing is copied.
        commit_group: close the group of copies after this one.
        reduction_op: combine with the old value: "add", "min", "max", and for integers "and", "or", "xor".

    Raises:
        PalladioTypeError: not a reference to shared or to global memory; another dtype, or one that the reduction
            does not take; a predicate that is not a bool[].
        PalladioValueError: another shape; no such reduction.
    """
    for target in dst.peers if isinstance(dst, MulticastRef) else (dst,):
        arguments = {"src": src, "dst": target}
        roots, stacks, operands = reached(*(require_reference(each, name) for name, each in arguments.items()))
        predicated = predicate_of(predicate)
        bind(ops.copy_smem_to_gmem, *roots, predicated, *operands, transforms=stacks, reduction=reduction_op)
    if commit_group:
        commit_smem_to_gmem_group()


def commit_smem_to_gmem_group() -> None:
    """Close the group of this thread's copies to global memory since the last one.

    Raises:
        PalladioValueError: outside of a kernel.
    """
    require_trace("commit_smem_to_gmem_group")
    bind(ops.commit_smem_to_gmem_group)


def wait_smem_to_gmem(n: int, wait_read_only: bool = False) -> None:
    """Wait until at most `n` groups of this thread's copies to global memory are in flight.

    Args:
        wait_read_only: wait only until the others have read their sources, which may then be written again.

    Raises:
        PalladioValueError: `n` is not an integer known when the kernel is traced, or negative; outside of a kernel.
    """
    require_trace("wait_smem_to_gmem")
    bind(ops.wait_smem_to_gmem, n=n, read_only=bool(wait_read_only))


def commit_smem() -> None:
    """Make this thread's ordinary stores to shared memory visible to copies and products that start after it.

    Raises:
        PalladioValueError: outside of a kernel.
    """
    require_trace("commit_smem")
    bind(ops.commit_smem)


def commit_gmem() -> None:
    """Make ordinary stores to global memory visible to asynchronous copies that read them.

    It covers stores of this thread, and those of other threads and blocks that it has acquired by a semaphore or an
    atomic. Call it in the storing thread, after the stores, or in the one that starts the copy, before it (PTX ISA,
    "Async proxy").

    Raises:
        PalladioValueError: outside of a kernel.
    """
    require_trace("commit_gmem")
    bind(ops.commit_gmem)


def async_prefetch(ref: Any, *, collective_axes: Any = None, leader_tracked: Any = None, predicate: Any = None) -> None:
    """Prefetch global memory into the second-level cache.

    Raises:
        PalladioTypeError: not a reference to global memory.
    """
    (root,), (stack,), operands = reached(require_reference(ref, "ref"))
    bind(ops.async_prefetch, root, predicate_of(predicate), *operands, transforms=stack)


def async_store_smem(
    src: Any,
    ref: Any,
    barrier: Any,
    *,
    cluster_idx: Any = None,
    cluster_dim: str | None = None,
    optimized: bool = True,
    atomic: str | None = None,
) -> None:
    """Start storing an array into shared memory of a block of the cluster and return immediately.

    Args:
        src: the array, `dtype[shape]` of the part that `ref` selects.
        barrier: it gets one arrival, in that block, when the bytes have landed.
        cluster_idx, cluster_dim: the block's index along a cluster axis; by default the block of `ref` and `barrier`.
        atomic: combine with the old value: "add", "min", "max", and for integers "and", "or", "xor".

    Raises:
        PalladioTypeError: no shared memory, no barrier, or an array of another dtype.
        PalladioValueError: another shape; an unknown combination; an axis that the cluster does not have.
    """
    target, signalled = require_reference(ref, "ref"), one_barrier(barrier)
    for axis in axis_names(cluster_dim, "cluster_dim"):
        target = cluster_ref(target, {axis: cluster_idx})
        signalled = cluster_ref(signalled, {axis: cluster_idx})
    roots, stacks, operands = reached(target, signalled)
    bind(ops.async_store_smem, *roots, fitted(src, target), *operands, transforms=stacks, reduction=atomic)


def cluster_ref(ref: Any, idxs: dict[str, Any]) -> Reference:
    """The same buffer or barrier in another block of the cluster.

    Args:
        idxs: for some cluster axes, the block's index along them.

    Raises:
        PalladioTypeError: not a reference; indices that are not a mapping.
        PalladioValueError: an axis that the cluster does not have.
    """
    if not isinstance(idxs, Mapping):
        raise PalladioTypeError(
            "a block of the cluster is named by its indices along named axes",
            argument="idxs",
            expected="such as {axis: 0}",
            got=repr(idxs),
        )
    require_cluster_axes(axis_names(idxs, "idxs"), "idxs")
    return require_reference(ref, "ref").in_peer(idxs)
