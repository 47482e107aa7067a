"""Ring buffers through which the memory warpgroup of a block passes blocks of arrays to the compute warpgroups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.library.hopper.limits import COMPUTE_GROUPS

Ref = Any
Value = Any


def ring_scratch(
    name: str, blocks: Sequence[Any], stages: int, peers: Sequence[str] = (), copies: int | None = None
) -> dict[str, Any]:
    """The scratch of a ring: `stages` buffers for each of several blocks, and the barriers of each stage.

    The copies into the buffers of a stage arrive at `filled`; warpgroups that have read it arrive at `drained`.

    Args:
        blocks: the shape and dtype of each, `palladio.ShapeDtypeStruct`.
        peers: the axes of the cluster whose blocks share loads: a stage is free when all of them have read it.
        copies: the number of copies that fill a stage; one for each block by default.
    """
    drained: dict[str, Any] = {"num_arrivals": COMPUTE_GROUPS, "num_barriers": stages}
    return {
        name: [plgpu.SMEM((stages, *block.shape), block.dtype) for block in blocks],
        f"{name}_filled": plgpu.Barrier(num_arrivals=len(blocks) if copies is None else copies, num_barriers=stages),
        f"{name}_drained": plgpu.ClusterBarrier(collective_axes=tuple(peers), **drained)
        if peers
        else plgpu.Barrier(**drained),
    }


@dataclass(frozen=True)
class Ring:
    """A ring in a kernel. Both sides count steps from the start of the kernel.

    Fields:
        shared: for each buffer, the axes of the cluster whose blocks each fill a part of it.
        parts: for a buffer that several copies fill, by its position, the part of all stages for each copy.
    """

    buffers: Sequence[Ref]
    filled: Ref
    drained: Ref
    stages: int
    shared: Sequence[tuple[str, ...]]
    parts: Mapping[int, Sequence[Ref]] = field(default_factory=dict)

    @staticmethod
    def of(scratch: Mapping[str, Any], name: str, shared: Sequence[tuple[str, ...]] | None = None) -> Ring:
        """The ring that `ring_scratch` declared under this name."""
        buffers = scratch[name]
        axes = [()] * len(buffers) if shared is None else shared
        return Ring(buffers, scratch[f"{name}_filled"], scratch[f"{name}_drained"], buffers[0].shape[0], axes)

    def slot(self, step: Value) -> Value:
        """The stage of a step. An unsigned remainder is cheap, and known to be one of the stages."""
        return lax.rem(jnp.asarray(step).astype(jnp.uint32), jnp.uint32(self.stages)).astype(jnp.int32)

    def fill(self, step: Value, *sources: Ref) -> None:
        """Start the copies of a step as soon as its buffers are free again.

        Args:
            sources: one source for each buffer, or for each of its parts.
        """
        slot = self.slot(step)

        @pl.when(step >= self.stages)
        def _() -> None:
            plgpu.barrier_wait(self.drained.at[slot])

        filled = [
            (part, axes)
            for number, (buffer, axes) in enumerate(zip(self.buffers, self.shared, strict=True))
            for part in self.parts.get(number, [buffer])
        ]
        for source, (buffer, axes) in zip(sources, filled, strict=True):
            plgpu.copy_gmem_to_smem(source, buffer.at[slot], self.filled.at[slot], collective_axes=axes or None)

    def await_drained(self, steps: Value) -> None:
        """After the last of `steps`, wait for the remaining phases of `drained`, so that all are observed."""

        @pl.loop(jnp.maximum(steps - self.stages, 0), steps)
        def _(step: Value) -> None:
            plgpu.barrier_wait(self.drained.at[self.slot(step)])

    def take(self, step: Value) -> list[Ref]:
        """The buffers of a step, once they are filled."""
        slot = self.slot(step)
        plgpu.barrier_wait(self.filled.at[slot])
        return [buffer.at[slot] for buffer in self.buffers]

    def give_back(self, step: Value) -> None:
        """Signal that this warpgroup has read the buffers of a step."""
        plgpu.barrier_arrive(self.drained.at[self.slot(step)])
