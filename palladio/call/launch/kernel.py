"""`kernel`: a program for each thread of a mesh, run concurrently, on references to whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.errors import PalladioValueError, at_call
from palladio.call.launch.launch_call import LaunchCall
from palladio.call.launch.mesh import check_meshes
from palladio.call.outputs import Outputs, checked_aliases
from palladio.driver.executors import choose
from palladio.pipeline.params import advice_of
from palladio.trace.functions import require_function


def launch_on(
    bodies: Sequence[Callable[..., None]],
    meshes: Sequence[Any],
    out_type: Any,
    scratch_types: Any,
    *,
    what: str,
    name: str | None,
    debug: bool,
    interpret: Any,
    aliases: Mapping[int, int] | None = None,
    compiler_params: Any = None,
) -> LaunchCall:
    """The call of bodies on meshes, its arguments checked."""
    check_meshes(meshes)
    for body in bodies:
        require_function(body, "a kernel", "body")
    outputs = Outputs(() if out_type is None else out_type)
    choose(interpret)
    pairs = checked_aliases(aliases or {}, len(outputs.types))
    call = LaunchCall(
        bodies, meshes, outputs, scratch_types, pairs, what=what, name=name, debug=debug, interpret=interpret
    )
    call.advice = advice_of(compiler_params)
    return call


def _counted(value: Any) -> str:
    return f"a sequence of {len(value)}" if isinstance(value, (list, tuple)) else "one"


@checked_call
def kernel(
    body: Any = None,
    out_type: Any = (),
    *,
    mesh: Any,
    scratch_types: Any = (),
    compiler_params: Any = None,
    interpret: Any = None,
    cost_estimate: Any = None,
    debug: bool = False,
    name: str | None = None,
    metadata: Any = None,
    input_output_aliases: Mapping[int, int] | None = None,
) -> Any:
    """A function of arrays that runs a body on a mesh, or several bodies on several meshes, concurrently.

    Args:
        body: a function of references, or a sequence of them; left out, `kernel` is a decorator.
        mesh: a mesh, or a sequence with one for each body.
        out_type, scratch_types, interpret, debug, name, metadata, cost_estimate, compiler_params,
            input_output_aliases: as in `palladio.gpu.kernel`.

    Raises:
        PalladioValueError: bodies and meshes of different numbers.
    """
    several = isinstance(mesh, (list, tuple))

    def of(functions: Any) -> LaunchCall:
        with at_call():
            bodies = list(functions) if isinstance(functions, (list, tuple)) else [functions]
            meshes = list(mesh) if several else [mesh]
            if len(bodies) != len(meshes) or isinstance(functions, (list, tuple)) != several:
                raise PalladioValueError(
                    "body and mesh are two sequences of one length, or one of each",
                    argument="mesh",
                    got=f"{_counted(functions)} and {_counted(mesh)}",
                )
            return launch_on(
                bodies,
                meshes,
                out_type,
                scratch_types,
                what="kernel",
                name=name,
                debug=debug,
                interpret=interpret,
                aliases=input_output_aliases,
                compiler_params=compiler_params,
            )

    return of if body is None else of(body)
