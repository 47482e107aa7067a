"""Operators from user-defined kernel calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from palladio.base import trees
from palladio.base.errors import PalladioNotImplementedError, PalladioTypeError, PalladioValueError, at_call
from palladio.call.outputs import Outputs
from palladio.interop.torch.arguments import require_tensors
from palladio.interop.torch.registration import Operator

Tensor = torch.Tensor
Backward = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor | None] | Tensor | None]

NAMESPACE = "palladio_kernels"


def op(call: Callable[..., Any], *, name: str, backward: Backward | None = None) -> Callable[..., Any]:
    """Make a PyTorch operator of a kernel call, for `torch.compile`, `torch.export`, autograd and `torch.func`.

    Args:
        call: the result of `pallas_call`, `plgpu.kernel` or `mpmd_map`.
        name: the operator's name, `namespace::name` or a name in the namespace `palladio_kernels`; unique in a
            process.
        backward: `(inputs, outputs, gradients of the outputs) -> gradients of the inputs`, a tuple with None for inputs
            that have none, or one gradient for a call of one input. Without it the operator has no gradient, and raises
            an error where one is computed.

    Returns:
        A function of tensors, in the order of the call's arguments, which returns tensors in the structure of the
        call's results. Shapes and dtypes come from the call's own `out_shape`.

    Raises:
        PalladioTypeError: for anything but a kernel call.
        PalladioValueError: a name that is invalid or taken.
    """
    with at_call():
        if not isinstance(getattr(call, "outputs", None), Outputs):
            raise PalladioTypeError(
                "an operator is made of what pallas_call, kernel or mpmd_map returns", argument="call", got=repr(call)
            )
        qualified = name if "::" in name else f"{NAMESPACE}::{name}"
        namespace, _, short = qualified.partition("::")
        if not (namespace.isidentifier() and short.isidentifier()):
            raise PalladioValueError("an operator has an identifier as its name", argument="name", got=repr(name))
        if hasattr(getattr(torch.ops, namespace), short):
            raise PalladioValueError("there is an operator of this name", argument="name", got=qualified)
    return _Kernel(call, qualified, backward)


class _Kernel:
    """The operator `(Tensor[] inputs) -> Tensor[]` of a call, and the structure of the call's result."""

    def __init__(self, call: Callable[..., Any], name: str, backward: Backward | None) -> None:
        self.call = call
        self.__name__ = name
        self.backward = backward
        outputs: Outputs = call.outputs  # type: ignore[attr-defined]
        self.types = [(type.shape, getattr(torch, str(type.dtype))) for type in outputs.types]
        # The results' tree with numbers for leaves, in plain Python, which PyTorch's compiler follows.
        self.template = trees.unflatten(outputs.structure, range(len(self.types)))
        self.operator = Operator(name, self._run, "(Tensor[] inputs) -> Tensor[]")
        self.operator.register_fake(self._described)
        self.operator.register_derivatives(self._context, self._gradients)

    def __call__(self, *inputs: Tensor) -> Any:
        """Run the kernel on tensors.

        Raises:
            PalladioTypeError: for an argument that is no tensor, or not a dense one.
        """
        if not torch.compiler.is_compiling():
            with at_call():
                require_tensors(**{f"inputs[{number}]": value for number, value in enumerate(inputs)})
        return _filled(self.template, self.operator(list(inputs)))

    def _run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return list(trees.flatten(self.call(*inputs))[0])

    def _described(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        device = inputs[0].device if inputs else "cpu"
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in self.types]

    def _context(self, ctx: Any, inputs: Any, output: Any) -> None:
        if self.backward is None:
            return
        ctx.count = len(inputs)
        ctx.save_for_backward(*inputs, *output)

    def _gradients(self, ctx: Any, *grads: Any) -> Any:
        if self.backward is None:
            raise PalladioNotImplementedError(
                "the operator has no gradient",
                argument=self.__name__,
                hint="op(call, name=..., backward=...) gives it one",
            )
        saved = ctx.saved_tensors  # read once: checkpointing gives each of them away only once
        return self.backward(saved[: ctx.count], saved[ctx.count :], grads)


def _filled(template: Any, leaves: Sequence[Tensor]) -> Any:
    """The tree with leaves in place of their numbers."""
    if isinstance(template, int):
        return leaves[template]
    if isinstance(template, dict):
        return {key: _filled(value, leaves) for key, value in template.items()}
    if isinstance(template, (tuple, list)):
        parts = [_filled(value, leaves) for value in template]
        return parts if isinstance(template, list) else tuple(parts)
    return template
