"""Kernel calls as launches on one core: those that close over references, and those that take or return semaphores.

The arrays of a grid are private while it runs. A launch takes references, so the kernel is inlined, in loops over the
grid, in the program of a core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.base import trees
from palladio.call.inline.written import written_grid
from palladio.call.launch.core_meshes import CoreMesh
from palladio.call.launch.launch_call import LaunchCall
from palladio.pipeline.specs import no_block_spec
from palladio.trace.array_refs import new_ref
from palladio.trace.grid import axis_index
from palladio.types.types import COUNTING, SCALAR

_NAME = "core of a grid"


def takes_semaphores(call: Any) -> bool:
    """True if semaphores go into a `pallas_call` or come out of it."""
    specs = [each for each in (call.spec.in_specs, call.spec.out_specs) if each is not no_block_spec]
    spaces = [getattr(leaf, "memory_space", None) for leaf in trees.flatten(specs)[0]]
    return any(space in COUNTING for space in (*spaces, *call.outputs.spaces))


def launched_grid(call: Any, args: Sequence[Any], out: Any, cores: int = 1) -> Any:
    """The results of a `pallas_call`, launched on one core, or on several that share the parallel axes of its grid."""
    ends = call.spec.num_scalar_prefetch, len(args), len(args) + len(call.outputs.tree)

    def body(*refs: Any, **keywords: Any) -> None:
        scalars, inputs, outputs = (
            trees.flatten(refs[first:end])[0] for first, end in zip((0, *ends), ends, strict=False)
        )
        core = (axis_index(_NAME), cores) if cores > 1 else (0, 1)
        if cores > 1:  # the scalars of a core are its own
            scalars = [new_ref(ref[...], memory_space=SCALAR) for ref in scalars]
        written_grid(call, args, (scalars, inputs, outputs), refs[ends[-1] :], keywords, core)

    body.__name__ = call.__name__
    launch = LaunchCall(
        [body],
        [CoreMesh(_NAME, cores)],
        call.outputs.arrays,
        call.spec.scratch_shapes,
        call.aliases,
        what="pallas_call",
        name=call.__name__,
        debug=call.debug,
        interpret=call.interpret,
    )
    results = launch(*args, out=out)
    return results if call.outputs.types else trees.unflatten(call.outputs.structure, ())
