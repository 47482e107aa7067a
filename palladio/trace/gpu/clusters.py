"""References into several other blocks of a cluster, or to the global memory of several devices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NoReturn

from palladio.base.arguments import axis_names
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.trace.gpu.peers import is_on_devices, on_all
from palladio.trace.grid import axis_size, require_cluster_axes
from palladio.trace.reference import Reference, require_reference
from palladio.types.types import BARRIER, GMEM, SMEM


class MulticastRef:
    """The same buffer in several blocks of a cluster, or on several devices. It is write-only.

    `ref[...] = value` stores into each, and so does `copy_smem_to_gmem`.

    `peers` are references to each of them, for other operations: `for one in refs.peers: barrier_arrive(one)`.
    """

    __slots__ = ("peers",)

    def __init__(self, peers: Sequence[Reference]) -> None:
        self.peers = tuple(peers)

    def __repr__(self) -> str:
        what = "devices" if self.peers[0].memory_space is GMEM else "blocks"
        return f"{self.peers[0]!r} of {len(self.peers)} {what}"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part in each block."""
        return self.peers[0].shape

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.peers[0].dtype

    @property
    def at(self) -> _At:
        """`refs.at[index]` is the same part of each."""
        return _At(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        for peer in self.peers:
            peer[key] = value

    def __getitem__(self, key: Any) -> NoReturn:
        raise PalladioTypeError(
            "a reference to several blocks can only be written",
            got=repr(self),
            hint="read one block's: plgpu.cluster_ref(ref, {axis: index})[...]",
        )

    def __iter__(self) -> NoReturn:
        self[...]


class _At:
    """The indexing half of `refs.at[index]`."""

    __slots__ = ("refs",)

    def __init__(self, refs: MulticastRef) -> None:
        self.refs = refs

    def __getitem__(self, key: Any) -> MulticastRef:
        return MulticastRef([peer.at[key] for peer in self.refs.peers])


def multicast_ref(ref: Any, axes: str | Sequence[str]) -> MulticastRef:
    """The same shared memory, `dtype[shape]`, in all blocks of the cluster that differ from this one along `axes` only.

    A write to it writes in each of these blocks, including this one. The blocks must be synchronised: signal
    them through a `ClusterBarrier`, or arrive at each of `multicast_ref(barrier, axes).peers`.

    Args:
        ref: a reference to shared memory or to a barrier; in a launch on several devices, also to global memory.
        axes: the names of cluster axes with static sizes; for global memory, of axes of devices.

    Raises:
        PalladioTypeError: not a reference to memory that a block owns.
        PalladioValueError: no axes, an axis that the mesh does not have or whose size is known only at the call.
    """
    reference = require_reference(ref, "ref")
    if reference.memory_space is GMEM and is_on_devices():
        return MulticastRef(on_all(reference, axes))
    if reference.memory_space not in (SMEM, BARRIER):
        raise PalladioTypeError(
            "each block of a cluster has its own shared memory and barriers, nothing else",
            argument="ref",
            got=repr(reference),
        )
    names = axis_names(axes, "axes")
    require_cluster_axes(names, "axes")
    sizes = [axis_size(name) for name in names]
    if not sizes or not all(isinstance(size, int) for size in sizes):
        raise PalladioValueError(
            "the blocks are counted along at least one cluster axis of static size", argument="axes", got=names
        )
    places = itertools.product(*map(range, sizes))
    return MulticastRef([reference.in_peer(dict(zip(names, place, strict=True))) for place in places])
