"""Descriptions of allocations other than plain buffers: accumulators, barriers, semaphores.

Each has a `ref_type`, as `MemoryRef` has, and may stand in `scratch_types` and `run_scoped`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from palladio.base.arguments import axis_names
from palladio.base.calls import checked_call
from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError, at_call
from palladio.types import dtypes
from palladio.types.attributes import Arrivals, Named
from palladio.types.device import H100_SXM
from palladio.types.dtypes import DType
from palladio.types.types import (
    ACC as ACC_SPACE,
)
from palladio.types.types import (
    BARRIER,
    DMA_SEMAPHORE,
    SEMAPHORE,
    MemoryRef,
    MemorySpace,
    Ownable,
    RefType,
    Shape,
    described_shape,
)


@checked_call
@dataclass(frozen=True, init=False, eq=False)
class ACC(Ownable):
    """A wgmma accumulator `dtype[m, n]` in the registers of one warpgroup; it starts as zeros.

    `ACC.init(array)` describes one that starts as an array, for `run_state`.

    Raises:
        PalladioValueError: for a shape that is not [m, n].
    """

    shape: Shape
    dtype: DType
    value: Any

    def __init__(self, shape: Any, dtype: Any = dtypes.FLOAT32, *, _value: Any = None) -> None:
        with at_call():
            object.__setattr__(self, "shape", described_shape(shape))
            object.__setattr__(self, "dtype", dtypes.canonical(dtype))
            object.__setattr__(self, "value", _value)
            if len(self.shape) != 2:
                raise PalladioValueError("an accumulator is a matrix", argument="shape", got=self.shape)

    @classmethod
    def init(cls, array: Any) -> ACC:
        """An accumulator that starts as this array, for `run_state`."""
        shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
        if shape is None or dtype is None:
            raise PalladioTypeError("an accumulator starts as an array", argument="array", got=repr(array))
        return cls(shape, dtype, _value=array)

    @property
    def ref_type(self) -> RefType:
        """The type of a reference to it.

        Raises:
            PalladioValueError: if it has an initial value, which only `run_state` gives.
        """
        if self.value is not None:
            raise PalladioValueError(
                "an accumulator with an initial value can only be made by run_state",
                hint="pl.run_state(f)(plgpu.ACC.init(array))",
            )
        return self.state_type

    @property
    def state_type(self) -> RefType:
        """The type of a reference to it, whatever it starts as."""
        return RefType(self.shape, self.dtype, ACC_SPACE)


def _count(value: Any, argument: str) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise PalladioTypeError("a number of arrivals is an integer", argument=argument, got=repr(value)) from None
    if found < 1:
        raise PalladioValueError("a barrier needs at least one arrival", argument=argument, got=found)
    return found


@checked_call
@dataclass(frozen=True, init=False)
class Barrier(Ownable):
    """Barriers of a block: a phase completes after `num_arrivals` arrivals.

    Args:
        num_arrivals: arrivals of threads and of copies in one phase, at least 1.
        num_barriers: how many barriers, () for one without an index.
        orders_tensor_core: accepted for Blackwell kernels; without effect.

    Raises:
        PalladioValueError: fewer than one arrival or barrier.
    """

    num_arrivals: int
    shape: Shape

    def __init__(self, *, num_arrivals: int = 1, num_barriers: Any = (), orders_tensor_core: bool = False) -> None:
        with at_call():
            object.__setattr__(self, "num_arrivals", _count(num_arrivals, "num_arrivals"))
            object.__setattr__(self, "shape", _barriers(num_barriers))

    @property
    def ref_type(self) -> RefType:
        """The type of a reference to them."""
        return RefType(self.shape, dtypes.INT32, BARRIER, (Arrivals(self.num_arrivals),))


def _barriers(num_barriers: Any) -> Shape:
    shape = described_shape(num_barriers)
    if min(shape, default=1) < 1:
        raise PalladioValueError("there is at least one barrier", argument="num_barriers", got=num_barriers)
    return shape


def _groups(axes: Any) -> tuple[str | tuple[str, ...], ...]:
    """The axes of a barrier: names, and tuples of several that are one."""
    entries = (axes,) if isinstance(axes, str) or not isinstance(axes, (tuple, list)) else axes
    groups = [axis_names(each, "collective_axes") for each in entries]
    return tuple(group[0] if len(group) == 1 else group for group in groups)


@checked_call
@dataclass(frozen=True, init=False)
class ClusterBarrier(Ownable):
    """Barriers whose arrivals count in the blocks of a cluster.

    An arrival counts in the own block and in every block that differs along exactly one of the collective axes; a phase
    of each completes after `num_arrivals` arrivals from every one of these.

    Args:
        collective_axes: names of cluster axes; a tuple of some of them is one, the axis of all their blocks.
        num_arrivals, num_barriers, orders_tensor_core: as for `Barrier`.
        leader_tracked: must be False.

    Raises:
        PalladioNotImplementedError: arrivals that only a leader counts.
    """

    collective_axes: tuple[str | tuple[str, ...], ...]
    num_arrivals: int
    shape: Shape

    def __init__(
        self,
        *,
        collective_axes: str | Sequence[str | tuple[str, ...]],
        num_arrivals: int = 1,
        num_barriers: Any = (),
        orders_tensor_core: bool = False,
        leader_tracked: bool = False,
    ) -> None:
        with at_call():
            object.__setattr__(self, "collective_axes", _groups(collective_axes))
            object.__setattr__(self, "num_arrivals", _count(num_arrivals, "num_arrivals"))
            object.__setattr__(self, "shape", _barriers(num_barriers))
            if leader_tracked:
                raise PalladioNotImplementedError(
                    "arrivals at a barrier of the cluster count in every block, not in its leader alone",
                    argument="leader_tracked",
                    got=leader_tracked,
                    hint="leave it out, and let all blocks wait before they end",
                )

    @property
    def ref_type(self) -> RefType:
        """The type of a reference to them."""
        return RefType(self.shape, dtypes.INT32, BARRIER, (Arrivals(self.num_arrivals, self.collective_axes),))


@checked_call
@dataclass(frozen=True, init=False)
class NamedBarrier(Ownable):
    """Barriers of a block that need no memory: the hardware's named ones, PTX `bar.sync` and `bar.arrive`.

    `barrier_arrive_and_wait` arrives and waits until `num_arrivals` warpgroups of the block have arrived since the last
    completion; `barrier_arrive` arrives and continues. Unlike a `Barrier`, a thread that does not wait misses nothing,
    no copy can arrive, and there is no waiting without arriving.

        turns = plgpu.NamedBarrier(num_arrivals=2, num_barriers=2)  # two warpgroups take turns
        plgpu.barrier_arrive_and_wait(turns.at[me])
        ...
        plgpu.barrier_arrive(turns.at[1 - me])

    Args:
        num_arrivals: warpgroups that complete a phase, at least 1; the hardware counts 128 threads for each.
        num_barriers: how many barriers, () for one without an index; a block has 16.

    Raises:
        PalladioTypeError: an arrival count that is not an integer.
        PalladioValueError: fewer than one arrival or barrier, more barriers than a block has.
    """

    num_arrivals: int
    shape: Shape

    def __init__(self, *, num_arrivals: int, num_barriers: Any = ()) -> None:
        with at_call():
            object.__setattr__(self, "num_arrivals", _count(num_arrivals, "num_arrivals"))
            object.__setattr__(self, "shape", _barriers(num_barriers))
            most = H100_SXM.named_barriers
            if math.prod(self.shape) > most:
                raise PalladioValueError(
                    f"a block has {most} named barriers", argument="num_barriers", got=num_barriers
                )

    @property
    def ref_type(self) -> RefType:
        """The type of a reference to them."""
        return RefType(self.shape, dtypes.INT32, BARRIER, (Arrivals(self.num_arrivals), Named()))


@dataclass(frozen=True)
class SemaphoreKind(Ownable):
    """A kind of semaphore: itself describes one, `kind((n,))` describes n of them."""

    name: str
    space: MemorySpace

    def __call__(self, shape: Any = ()) -> MemoryRef:
        """Describe an array of semaphores of this shape."""
        with at_call():
            return MemoryRef(described_shape(shape), dtypes.INT32, self.space)

    @property
    def ref_type(self) -> RefType:
        """The type of a reference to one."""
        return RefType((), dtypes.INT32, self.space)


class SemaphoreType:
    """The kinds of semaphore, as Pallas spells them: counters, counters of copied bytes, and barriers of cores."""

    REGULAR = SemaphoreKind("regular", SEMAPHORE)
    DMA = SemaphoreKind("dma", DMA_SEMAPHORE)
    BARRIER = SemaphoreKind("barrier", SEMAPHORE)


def alloc_semaphore(shape: Any = (), kind: SemaphoreKind = SemaphoreType.REGULAR) -> MemoryRef:
    """Describe semaphores in global memory for `scratch_types`; they are shared by all threads of the launch.

    Args:
        shape: how many, () for one without an index.
        kind: of `SemaphoreType`.

    Raises:
        PalladioTypeError: another kind of thing.
    """
    with at_call():
        if not isinstance(kind, SemaphoreKind):
            raise PalladioTypeError("this is not a kind of semaphore", argument="kind", got=repr(kind))
        return kind(shape)
