"""Products of arrays outside of kernels, summed in the order in which compiled kernels sum theirs.

A program that uses Pallas compares its kernel with `x @ y`, often for equality: there, both come from one compiler.
NumPy splits a long sum into parts, so its last bits differ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from palladio.call.pallas_call import pallas_call
from palladio.driver.executors import chosen_executor
from palladio.ir.bind import EAGER, Eager, bind, current
from palladio.ir.core import Op
from palladio.ops.arrays.dot import dot_general
from palladio.types import dtypes
from palladio.types.types import ArrayType, ShapeDtypeStruct

LEAST_TERMS = 256
"""A sum of fewer products is left to NumPy, which does not split it: no kernel has to be compiled."""


class _Products(Eager):
    """Applies operations eagerly; a product of floats with long sums runs as a kernel, where kernels are compiled."""

    def bind(self, op: Op, inputs: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
        if op is dot_general and _is_long(inputs, params) and chosen_executor() == "cpu":
            with _applied_by(EAGER):
                fixed = tuple((name, params[name]) for name in sorted(params))
                call = _compiled(fixed, *((each.shape, each.dtype) for each in inputs))
                return [call(*map(np.ascontiguousarray, inputs))]
        return super().bind(op, inputs, params)


def _is_long(inputs: Sequence[Any], params: dict[str, Any]) -> bool:
    if not all(isinstance(each, np.ndarray) and dtypes.is_float(each.dtype) for each in inputs):
        return False
    if params["batch"][0]:
        return False  # as in attention with many lengths, each of which would be compiled
    axes = params["contracting"][0]
    return all(each.size for each in inputs) and int(np.prod([inputs[0].shape[axis] for axis in axes])) >= LEAST_TERMS


@functools.lru_cache(maxsize=256)
def _compiled(params: tuple[tuple[str, Any], ...], *described: tuple[tuple[int, ...], Any]) -> Callable[..., Any]:
    """The product of two arrays of these shapes and dtypes, one block each."""
    known = dict(params)
    (result,) = dot_general.type(*(ArrayType(*each) for each in described), **known)

    def product(lhs_ref: Any, rhs_ref: Any, out_ref: Any) -> None:
        (out_ref[...],) = bind(dot_general, lhs_ref[...], rhs_ref[...], **known)

    return pallas_call(product, ShapeDtypeStruct(result.shape, result.dtype))


@contextmanager
def _applied_by(interpreter: Any) -> Iterator[None]:
    token = current.set(interpreter)
    try:
        yield
    finally:
        current.reset(token)


_PRODUCTS = _Products()


def with_products(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function; its eager products are summed as those of kernels are."""
    if current.get() is not EAGER:
        return function(*args, **kwargs)
    with _applied_by(_PRODUCTS):
        return function(*args, **kwargs)
