"""Calling compiled launches on arrays.

The blocks of a launch are tasks of several workers, unless they may wait for each other: then they take turns on one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from palladio.array.copies import row_major
from palladio.base import knobs
from palladio.cpu.launches.coroutines import WORD, Header
from palladio.cpu.launches.launch import LoweredLaunch, lower_launch, varies
from palladio.cpu.launches.scheduler import HEADER
from palladio.cpu.runtime.callbacks import Responder, Stopped
from palladio.cpu.runtime.machine_code import MachineCode
from palladio.cpu.runtime.memory import fill, output
from palladio.cpu.runtime.status import Deadlocked, Status
from palladio.cpu.runtime.workers import Work, run_tasks
from palladio.ir.core import Program
from palladio.ops.threads.launch import Launch, MeshAxis
from palladio.types.device import H100_SXM
from palladio.types.types import SYNCHRONISING, RefType, Type

LaunchArray = np.ndarray[Any, Any]

BRIEF_S = 100e-6
"""Seconds of work for which waking another thread does not pay."""


class CompiledLaunch:
    """A lowered launch, ready to be called."""

    def __init__(self, lowered: LoweredLaunch) -> None:
        self.code = MachineCode(lowered.text)
        self.call = self.code.call
        self.lowered = lowered
        header = np.zeros(Header.WORDS, np.int64)
        self.call(None, None, header.ctypes.data, -1, 0)
        self.frame = int(header[Header.FRAME])
        self.cluster = lowered.fixed + self.frame * lowered.frames
        self.brief = False

    def assembly(self) -> str:
        """The machine code as text."""
        return self.code.assembly()

    def run(self, arrays: Sequence[LaunchArray], sizes: Any, clusters: int) -> None:
        """Run all clusters.

        Raises:
            Deadlocked: if no thread can continue and some still wait.
        """
        lowered = self.lowered
        # If blocks wait for each other, as many clusters run concurrently as the machine allows.
        slots = min(clusters, H100_SXM.multiprocessors) if lowered.together else 1
        failed: list[BaseException] = []

        def start(memory: LaunchArray) -> Work:
            addresses = (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))
            return self.work(addresses, sizes, memory, slots, failed)

        workers = 1 if lowered.together or self.brief else knobs.thread_count()
        # Clusters that wait for each other are one task.
        tasks, begin = (1, lambda memory: _whole(start(memory), clusters)) if lowered.together else (clusters, start)
        self.brief = run_tasks(tasks, workers, begin, failed, HEADER + slots * self.cluster) < BRIEF_S

    def work(self, arrays: Any, sizes: Any, memory: LaunchArray, slots: int, failed: Sequence[BaseException]) -> Work:
        """A function that runs some clusters on this worker."""
        address = memory.ctypes.data
        header = memory[:HEADER].view(np.int64)
        # The memory may have been used before: mark its slots as free.
        for slot in range(slots):
            memory[HEADER + slot * self.cluster :][:WORD] = 0

        def run(first: int, last: int) -> None:
            responder = Responder.take(self.lowered.callbacks, failed)
            header[:] = 0
            header[Header.NEXT] = first
            header[Header.FRAME], header[Header.SLOTS] = self.frame, slots
            header[Header.CALLER] = responder.address
            try:
                while (answer := self.call(arrays, sizes, address, first, last)) == Status.YIELDED:
                    if failed:
                        raise Stopped
                if answer == Status.CALLBACK_FAILED:
                    raise responder.error or Stopped
                if answer != Status.DONE:
                    raise Deadlocked
            finally:
                responder.give()

        return run


def _whole(work: Work, clusters: int) -> Work:
    """The work on all clusters as one task."""
    return lambda first, last: work(0, clusters)


class LaunchCall:
    """A `launch` as a function of its operands, NumPy arrays, and of arrays for its results.

    A pickled one is lowered again where it is read.

    Raises:
        Refused: if something is not compiled.
    """

    def __init__(self, launch: Launch, programs: Sequence[Program], operands: Sequence[Type]) -> None:
        self.launch, self.programs, self.operands = launch, programs, operands
        self.varying = [n for n, axis in enumerate(_dynamic(launch)) if varies(axis)]
        self.compiled: dict[tuple[int, ...], CompiledLaunch] = {}
        if self.varying:  # raises `Refused` now rather than at the first call
            lower_launch(launch, programs, operands)
        else:
            self.compiled_for(())
        self.aliased = {target: source for source, target in launch.aliases}
        self.changed = launch.written(programs)
        self.kept = {n for n, type in enumerate(operands[launch.dynamic :]) if isinstance(type, RefType)}
        self.initial = [ref.initial for ref in launch.output_refs]

    def __reduce__(self) -> Any:
        return LaunchCall, (self.launch, self.programs, self.operands)

    def __deepcopy__(self, memo: object) -> LaunchCall:
        return self  # its calls do not depend on each other

    def compiled_for(self, clusters: tuple[int, ...]) -> CompiledLaunch:
        """The machine code for these sizes of the axes that it depends on."""
        found = self.compiled.get(clusters)
        if found is None:
            lowered = lower_launch(self.launch, self.programs, self.operands, clusters)
            found = self.compiled[clusters] = CompiledLaunch(lowered)
        return found

    def __call__(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        dynamic = self.launch.dynamic
        given = [int(value) for value in values[:dynamic]]
        inputs: list[LaunchArray] = []
        for n, value in enumerate(values[dynamic:]):
            plain = row_major(value).reshape(np.shape(value))
            overlaps = any(np.may_share_memory(plain, each) for each in out or ())
            copied = overlaps or (n in self.changed and n not in self.kept)
            inputs.append(np.array(value, order="C") if copied else plain)
        outputs: list[LaunchArray] = []
        for n, type in enumerate(self.launch.output_types):
            if n in self.aliased:
                outputs.append(inputs[self.aliased[n]])
                continue
            outputs.append(output(type) if out is None else out[n])
            fill(outputs[-1], self.initial[n])
        compiled = self.compiled_for(tuple(given[n] for n in self.varying))
        scratch = [_scratch(array.type, array.shape) for array in compiled.lowered.scratch]
        counts = _clusters(self.launch, given)
        sizes = (ctypes.c_int64 * (len(given) + len(counts)))(*given, *counts)
        compiled.run((*inputs, *outputs, *scratch), sizes, sum(counts))
        for n in self.kept:
            if inputs[n] is not values[dynamic + n]:
                np.copyto(values[dynamic + n], inputs[n])
        if out is not None:
            for n in self.aliased:
                np.copyto(out[n], outputs[n])
            return out
        return outputs


def _dynamic(launch: Launch) -> list[MeshAxis]:
    """The mesh axes whose sizes are known only at the call."""
    return [axis for mesh in launch.meshes for axis in mesh.axes if axis.size is None]


def _clusters(launch: Launch, given: Sequence[int]) -> list[int]:
    """The number of clusters of each mesh."""
    sizes = iter(given)
    counts = []
    for mesh in launch.meshes:
        known = [(axis.kind, next(sizes) if axis.size is None else axis.size) for axis in mesh.axes]
        counts.append(math.prod(size for kind, size in known if kind == "grid"))
    return counts


def _scratch(type: RefType, shape: tuple[int, ...]) -> LaunchArray:
    """Memory of the whole launch. Barriers and semaphores are words, and begin with zeros."""
    if type.space in SYNCHRONISING:
        return np.zeros(shape, np.int64)
    return np.full(shape, type.initial, type.dtype)
