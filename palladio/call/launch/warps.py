"""Programs on other threads than the kernel's own: `warp_map`, and `core_map`, an older spelling of `kernel`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palladio.base.calls import checked_call
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call
from palladio.call.launch.kernel import launch_on
from palladio.call.launch.mesh import WarpMesh
from palladio.trace.functions import call_user, function_name, require_function
from palladio.trace.grid import axis_index
from palladio.trace.trace import current_trace

Decorator = Callable[[Callable[..., None]], None]


@checked_call
def core_map(
    mesh: Any,
    *,
    scratch_types: Any = (),
    compiler_params: Any = None,
    interpret: Any = None,
    debug: bool = False,
    cost_estimate: Any = None,
    name: str | None = None,
    metadata: Any = None,
    scratch_shapes: Any = None,
) -> Decorator:
    """A decorator that runs its function immediately, in every thread of a mesh; the older spelling of `kernel`.

    The function takes references to the scratch buffers, and closes over references and, in a function that is being
    traced, over scalars. Inside a GPU kernel the mesh is `plgpu.WarpMesh`; elsewhere the references are those of
    `run_state` or `new_ref`.

    Args:
        mesh: where it runs.
        scratch_types: as in `kernel`; also spelled `scratch_shapes`.
        compiler_params, interpret, debug, cost_estimate, name, metadata: as in `kernel`, where they matter.

    Raises:
        PalladioTypeError: not a mesh; a function that returns something, or captures an array.
    """
    with at_call():
        if not hasattr(mesh, "axes"):
            raise PalladioTypeError("this is not a mesh", argument="mesh", got=repr(mesh))

    def run(body: Callable[..., None]) -> None:
        with at_call():
            scratch = scratch_types if scratch_shapes is None else scratch_shapes
            launch_on(
                [body],
                [mesh],
                (),
                scratch,
                what="core_map",
                name=name,
                debug=debug,
                interpret=interpret,
                compiler_params=compiler_params,
            )()

    return run


def warp_map(f: Callable[[Any], None]) -> None:
    """Run `f(warp)` concurrently in each of the four warps of this warpgroup; `warp` is its number, i32[].

    A warp works with barriers, semaphores and copies: one of them may issue copies while another one waits. `f`
    closes over scalars and references. The warpgroup continues when all four have ended.

    Args:
        f: a function of one scalar that returns nothing.

    Raises:
        PalladioTypeError: not a function of one scalar, returns something, or captures an array.
        PalladioValueError: outside of a kernel.
    """
    with at_call():
        require_function(f, "what warp_map runs", "f")
        if current_trace() is None:
            raise PalladioValueError("warp_map has a meaning only inside a kernel")

        def body() -> None:
            result = call_user(f, (axis_index(_WARP),), {}, "the function under warp_map", "1 scalar: the warp", "f")
            if result is not None:
                raise PalladioTypeError(
                    "the function under warp_map must return nothing; it writes to references", got=repr(result)
                )

        body.__name__ = function_name(f)
        launch_on([body], [WarpMesh(_WARP)], (), (), what="warp_map", name=None, debug=False, interpret=None)()


_WARP = "warp"


def as_torch_kernel(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel itself: kernels take PyTorch tensors and return them.

    Raises:
        PalladioTypeError: not callable.
    """
    with at_call():
        require_function(fn, "a kernel", "fn")
    return fn
