"""`mpmd_map`: several programs on several meshes, concurrently, on the same inputs, outputs and scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.call.launch.kernel import launch_on
from palladio.call.launch.launch_call import LaunchCall


@checked_call
def mpmd_map(
    meshes_and_fns: Sequence[tuple[Any, Callable[..., None]]],
    /,
    out_types: Any = (),
    *,
    scratch_types: Any = (),
    compiler_params: Any = None,
    interpret: Any = None,
    debug: bool = False,
    cost_estimate: Any = None,
    name: str | None = None,
    metadata: Any = None,
    input_output_aliases: Mapping[int, int] | None = None,
) -> LaunchCall:
    """A function of arrays that runs each function on every core of its mesh, concurrently.

    Every function gets references to the inputs, the outputs and the scratch, in that order, and returns nothing. The
    programs share the memory that they reach, and synchronise by semaphores, barriers and copies.

    Args:
        meshes_and_fns: pairs of a mesh and a function of references. Meshes: `CoreMesh`, those of `palladio.tpu`,
            `plgpu.Mesh`, and inside a GPU kernel `plgpu.WarpMesh`; they must go together.
        out_types: a pytree of `ShapeDtypeStruct`.
        scratch_types: e.g. `(pltpu.VMEM @ mesh)((8, 128), jnp.float32)`, `pltpu.SemaphoreType.DMA @ mesh`; a mapping
            is passed by keyword. With several meshes each entry belongs to one of them, or lies in memory that all of
            them reach: `pltpu.HBM`, `pltpu.VMEM_SHARED`, global memory.
        input_output_aliases: from flat inputs to the flat outputs that start as their copies.
        interpret, debug, name: as in `palladio.kernel`.
        compiler_params, cost_estimate, metadata: information for tools and compilers.

    Returns:
        A function of pytrees of arrays that returns arrays in the structure of `out_types`. Inside a function that is
        being traced it also takes references, each of them once, and the functions may close over references.

    Raises:
        PalladioTypeError: not a pair, a mesh or a function; a function that returns something or captures an array.
        PalladioValueError: no pairs; meshes that do not go together; scratch without an owner, or of a mesh that is not
            among them; a program that uses the scratch of another mesh without naming the core.
    """
    with at_call():
        pairs = list(meshes_and_fns) if isinstance(meshes_and_fns, (list, tuple)) else None
        if pairs is None or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
            raise PalladioTypeError(
                "mpmd_map takes a sequence of pairs, a mesh and a function each",
                argument="meshes_and_fns",
                got=repr(meshes_and_fns),
            )
        if not pairs:
            raise PalladioValueError("at least one mesh with its function is needed", argument="meshes_and_fns")
        return launch_on(
            [function for _, function in pairs],
            [mesh for mesh, _ in pairs],
            out_types,
            scratch_types,
            what="mpmd_map",
            name=name,
            debug=debug,
            interpret=interpret,
            aliases=input_output_aliases,
            compiler_params=compiler_params,
        )
