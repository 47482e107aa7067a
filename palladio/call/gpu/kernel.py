"""`palladio.gpu.kernel`: a program for each warpgroup of a grid of blocks, on references to whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.errors import at_call
from palladio.call.launch.kernel import launch_on
from palladio.call.launch.launch_call import LaunchCall
from palladio.call.launch.mesh import Mesh


@checked_call
def kernel(
    body: Callable[..., None] | None = None,
    out_type: Any = (),
    *,
    scratch_types: Any = (),
    compiler_params: Any = None,
    cost_estimate: Any = None,
    grid: Any = (),
    grid_names: Sequence[str] | str = (),
    cluster: Any = (),
    cluster_names: Sequence[str] | str = (),
    num_threads: int | None = None,
    thread_name: str | None = None,
    interpret: Any = None,
    debug: bool = False,
    name: str | None = None,
    metadata: Any = None,
    input_output_aliases: Mapping[int, int] | None = None,
    out_shape: Any = None,
    scratch_shapes: Any = None,
) -> Any:
    """A function of arrays that runs `body` in every warpgroup of a grid of blocks, concurrently.

    The body gets references to the whole inputs and outputs in global memory, then to the scratch buffers: shared
    memory and barriers are one for each block, accumulators one for each thread. It returns nothing.

    Args:
        body: the program; left out, `kernel` is a decorator.
        out_type: a pytree of `ShapeDtypeStruct`; also spelled `out_shape`.
        scratch_types: e.g. `plgpu.SMEM(shape, dtype)`, `plgpu.ACC((m, n))`, `plgpu.Barrier()`; a mapping is passed
            by keyword. Also spelled `scratch_shapes`.
        grid, grid_names, cluster, cluster_names, num_threads, thread_name: the mesh, as `plgpu.Mesh` takes them.
        interpret: True for the evaluator, the name of an executor, or `plgpu.InterpretGPUParams(...)`.
        compiler_params: advice to a compiler, `plgpu.CompilerParams(...)`; the launch in the program keeps it.
        cost_estimate, metadata: information for tools.
        input_output_aliases: from flat inputs to the flat outputs that start as their copies.
        debug: print the program after each stage.

    Returns:
        A function of pytrees of NumPy, PyTorch or JAX arrays that returns arrays of their kind.

    Raises:
        PalladioTypeError: no function, no types of outputs or scratch, no executor; arguments that do not fit the mesh.
        PalladioValueError: as `plgpu.Mesh`; an argument in two spellings; aliases of other shapes or dtypes.
        CheckError: on the simulator, its first finding.
    """
    with at_call():
        mesh = Mesh(grid, grid_names, cluster, cluster_names, num_threads, thread_name, name)
    wanted = out_type if out_shape is None else out_shape
    scratch = scratch_types if scratch_shapes is None else scratch_shapes

    def of(function: Callable[..., None]) -> LaunchCall:
        with at_call():
            return launch_on(
                [function],
                [mesh],
                wanted,
                scratch,
                what="kernel",
                name=name,
                debug=debug,
                interpret=interpret,
                aliases=input_output_aliases,
                compiler_params=compiler_params,
            )

    return of if body is None else of(body)
