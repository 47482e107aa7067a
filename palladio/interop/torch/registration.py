"""Registration of PyTorch operators: a kernel, derivatives of both modes, and a batching rule.

`torch.library.custom_op` makes operators whose derivatives serve autograd and `torch.compile`, but not the
transformations of `torch.func` that differentiate (PyTorch 2.13: its autograd function lacks `setup_context`), nor
forward differentiation. A hand-written `autograd.Function` serves these, but Dynamo takes none that has a rule for
forward differentiation. The operators here have a separate kernel for the dispatch key Autograd. The dispatcher calls
it at each level of the active transformations, and Dynamo sees only the operator.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from palladio.base.errors import PalladioNotImplementedError
from palladio.interop.torch.arguments import require_data
from palladio.interop.torch.derivatives import (
    is_plain,
    is_recording,
    is_transformed,
    is_unobserved,
    one_at_a_time,
    primal,
)

Tensor = torch.Tensor

_libraries: list[Any] = []
"""The registrations of this process, kept alive: an operator disappears with the library that defined it."""


class Operator:
    """An operator `namespace::name`. Its schema is that of its kernel's signature if none is given.

    An operator of one argument `Tensor[]` is treated as one of as many tensors.

    Fields:
        name: qualified by the namespace.
        run: its kernel, for tensors of any device.
        overload: the operator for PyTorch's dispatcher.
        of_list: its one argument is `Tensor[]`.
    """

    def __init__(self, name: str, run: Callable[..., Any], schema: str | None = None) -> None:
        self.name = name
        self.run = run
        namespace, _, short = name.partition("::")
        library: Any = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
        _libraries.append(library)
        library.define(
            short + (schema or torch.library.infer_schema(run, mutates_args=())), tags=(torch.Tag.pt2_compliant_tag,)
        )
        self.overload: Any = getattr(getattr(torch.ops, namespace), short).default
        schema_of = self.overload._schema
        self.of_list = [str(each.type) for each in schema_of.arguments] == [_LIST]
        self._to_list = [str(each.type) for each in schema_of.returns] == [_LIST]
        self._library = library
        self._derivatives: _Derivatives | None = None

        def recorded(keys: Any, *args: Any) -> Any:
            return self._recorded(keys, *args)

        def kernel(*args: Any) -> Any:
            return run(*args)

        # Dynamo is to see the operator alone, not its body.
        library.impl(short, torch._disable_dynamo(kernel), "CompositeExplicitAutograd")
        library.impl(short, torch._disable_dynamo(recorded), "Autograd", with_keyset=True)

    def __call__(self, *args: Any) -> Any:
        """Call the operator through the dispatcher."""
        return self.overload(*args)

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Give the operator a function that describes its results, for tensors without data."""

        @functools.wraps(function)
        def described(*args: Any) -> Any:
            self._require_data(args)
            return function(*args)

        torch.library.register_fake(self.name, described, lib=self._library)
        return function

    def register_derivatives(
        self,
        context: Callable[[Any, Any, Any], None],
        backward: Callable[..., Any],
        forward: Callable[..., Any] | None = None,
    ) -> None:
        """Give the operator its derivatives, and the batching rule that runs it once for each element.

        Args:
            context: `(ctx, inputs, output)`, saves tensors for the derivatives, by `keep`.
            backward: `(ctx, *grads)`, returns a gradient or None for each input.
            forward: `(ctx, saved tensors, *tangents)`, returns the tangent of the result; None is the tangent of an
                input that has none. Without it, forward differentiation is an error.
        """
        self._derivatives = _Derivatives(self, context, backward, forward)
        rule = one_at_a_time(lambda *args: apply(self, *args))
        torch.library.register_vmap(self.name, rule, lib=self._library)

    def _require_data(self, args: Sequence[Any]) -> None:
        """Refuse some arguments without data: the result would have memory that nothing writes."""
        names = [each.name for each in self.overload._schema.arguments]
        given = (
            {f"{names[0]}[{n}]": each for n, each in enumerate(args[0])}
            if self.of_list
            else dict(zip(names, args, strict=False))
        )
        require_data({name: each for name, each in given.items() if isinstance(each, Tensor)})

    def _recorded(self, keys: Any, *args: Any) -> Any:
        """The kernel for the dispatch key Autograd."""
        tensors = args[0] if self.of_list else args
        if is_transformed() or is_recording(tensors):
            out = (self._derivatives or _Derivatives(self, *_refusing(self.name))).applied(*tensors, keys)
        elif is_plain(tensors):
            out = self.run(*args)  # it is what the dispatcher would find, in a quarter of the time
        else:
            out = self.below(keys, tensors)
        return list(out) if self._to_list else out

    def below(self, keys: Any, args: Sequence[Any]) -> Any:
        """The result of the dispatch keys after autograd; a tuple of tensors for a list of them."""
        given = [list(args)] if self.of_list else args
        with torch._C._AutoDispatchBelowAutograd():
            out = self.overload.redispatch(keys & torch._C._after_autograd_keyset, *given)
        return tuple(out) if self._to_list else out


_LIST = "List[Tensor]"
_REVERSE = "torch.func.vjp and jacrev differentiate in reverse mode"


def operator(name: str, schema: str | None = None) -> Callable[[Callable[..., Any]], Operator]:
    """The decorator that makes an operator of its kernel."""
    return lambda run: Operator(name, run, schema)


def apply(operator: Operator, *args: Any) -> Any:
    """Call an operator.

    Without active transformations the kernel runs directly: PyTorch's dispatch of an operator written in Python takes
    longer than a small product.
    """
    if torch.compiler.is_compiling():
        return operator(*args)
    if not is_transformed() and is_unobserved(args[0] if operator.of_list else args):
        return operator.run(*args)
    if "torch.distributed.tensor" in sys.modules:
        __import__("palladio.interop.torch.sharding")  # registers the operators for distributed tensors, once
    return operator(*args)


def _refusing(name: str) -> tuple[Callable[..., Any], Callable[..., Any], None]:
    """The derivatives of an operator that has none."""

    def refuse(ctx: Any, *grads: Tensor) -> Any:
        raise PalladioNotImplementedError("the operator has no gradient", argument=name)

    return lambda ctx, inputs, output: None, refuse, None


class _Derivatives:
    """The autograd functions of an operator; their last argument is the dispatcher's set of keys.

    One is for plain autograd, the other for a level of the transformations of `torch.func`, for which the dispatcher
    has unwrapped the tensors.
    """

    def __init__(
        self,
        operator: Operator,
        context: Callable[[Any, Any, Any], None],
        backward: Callable[..., Any],
        forward: Callable[..., Any] | None,
    ) -> None:
        def calls(guard: Callable[[], Any]) -> Callable[..., Any]:
            def call(ctx: Any, *args: Any) -> Any:
                *inputs, keys = args
                with guard():
                    output = operator.below(keys, inputs)
                context(ctx, tuple(inputs), output)
                return output

            return call

        def derive(ctx: Any, *grads: Any) -> Any:
            found = backward(ctx, *grads)
            return *(found if isinstance(found, (tuple, list)) else [found]), None

        def push(ctx: Any, *tangents: Any) -> Any:
            if forward is None:
                raise PalladioNotImplementedError(
                    "the operator has no derivative in forward mode", argument=operator.name, hint=_REVERSE
                )
            # PyTorch calls this with forward differentiation off, which loses the tangents of an outer `jvp`. Those of
            # this one are removed from the saved tensors.
            with torch.autograd.forward_ad._set_fwd_grad_enabled(True):
                return forward(ctx, [primal(each) for each in ctx.saved_tensors], *tangents[:-1])

        members = {"backward": staticmethod(derive), "jvp": staticmethod(push)}
        name = operator.name.rpartition(":")[2]
        plain = {"forward": staticmethod(calls(contextlib.nullcontext)), **members}
        level = {"forward": staticmethod(calls(_outer_levels)), **members}
        self._plain: Any = type(name, (torch.autograd.Function,), plain)
        self._level: Any = type(name, (torch.autograd.function._SingleLevelFunction,), level)

    def applied(self, *args: Any) -> Any:
        """The operator's result, recorded."""
        if not torch._C._are_functorch_transforms_active():
            return self._plain.apply(*args)
        with torch._functorch.utils.enable_single_level_autograd_function():
            return self._level.apply(*args)


@contextlib.contextmanager
def _outer_levels() -> Iterator[None]:
    """Switch differentiation on again for the outer levels, since an autograd function switches it off."""
    with torch.enable_grad(), torch.autograd.forward_ad._set_fwd_grad_enabled(True):
        yield
