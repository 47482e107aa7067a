"""Values of another kind where a static one is wanted, and operands that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from tests.errors.shown import OUT, X, shows


def in_a_kernel(use: Callable[[Any], Any]) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        use(x_ref[...])

    return pl.pallas_call(kernel, OUT)(X)


@pytest.mark.parametrize("flag", [np.ones(3), None, "yes", [True], 1j], ids=repr)
@pytest.mark.parametrize(
    "use",
    [
        lambda x, flag: plgpu.max(x, keepdims=flag),
        lambda x, flag: jnp.sum(x, axis=1, keepdims=flag),
        lambda x, flag: jnp.argmax(x, keepdims=flag),
        lambda x, flag: jnp.logsumexp(x, keepdims=flag),
        lambda x, flag: lax.index_in_dim(x, 0, keepdims=flag),
        lambda x, flag: lax.dynamic_index_in_dim(x, 0, keepdims=flag),
    ],
)
def test_a_flag_is_static(use: Callable[[Any, Any], Any], flag: Any) -> None:
    for call in (lambda: use(X, flag), lambda: in_a_kernel(lambda x: use(x, flag))):
        with pytest.raises(pl.PalladioTypeError, match="keepdims: a flag is a static bool") as caught:
            call()
        assert "test_static_arguments.py" in str(caught.value)


def test_a_traced_flag() -> None:
    with shows(
        TypeError,
        """
        keepdims: a flag is a static bool
          got:      Value: traced bool[]
          test_static_arguments.py:N, in <lambda>
            in_a_kernel(lambda x: x.sum(keepdims=x[0, 0] > 0))
                                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        in_a_kernel(lambda x: x.sum(keepdims=x[0, 0] > 0))


def test_a_complex_number_beside_a_traced_value() -> None:
    with shows(
        TypeError,
        """
        add: traced values compute with arrays and real numbers
          got:      complex: 1j
          test_static_arguments.py:N, in <lambda>
            in_a_kernel(lambda x: x + 1j)
                                  ^^^^^^
        """,
    ):
        in_a_kernel(lambda x: x + 1j)


@pytest.mark.parametrize("other", [[1, 2], (1,), None, "one", {}], ids=repr)
def test_what_is_no_operand_beside_a_traced_value(other: Any) -> None:
    for use in (lambda x: x * other, lambda x: other - x, lambda x: x < other):
        with pytest.raises(pl.PalladioTypeError, match="traced values compute with arrays and real numbers"):
            in_a_kernel(use)


def test_a_traced_value_is_compared_with_none_but_not_with_a_list() -> None:
    in_a_kernel(lambda x: x == None)  # noqa: E711  Python's own answer is False
    with pytest.raises(pl.PalladioTypeError, match="equal: traced values compute with arrays and real numbers"):
        in_a_kernel(lambda x: x == [1, 2])


@pytest.mark.parametrize(
    "use", [lambda x, out: np.add(x, x, out=out), lambda x, out: np.sum(x, out=out), lambda x, out: x.sum(out=out)]
)
def test_nothing_is_computed_into_an_array_while_tracing(use: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(pl.PalladioTypeError, match=r"^(add|sum) has no parameter 'out'") as caught:
        in_a_kernel(lambda x: use(x, np.zeros(X.shape, np.float32)))
    assert "test_static_arguments.py" in str(caught.value)


def test_a_shape_may_be_a_list() -> None:
    assert jnp.broadcast_to(np.ones(3, np.float32), [2, 3]).shape == (2, 3)
    with pytest.raises(pl.PalladioError):
        jnp.broadcast_to(np.ones(3, np.float32), "shape")


@pytest.mark.parametrize("size", ["three", np.ones(3, np.float32), 1j, 2.5], ids=repr)
def test_the_sizes_of_a_diagonal_matrix_are_integers(size: Any) -> None:
    for function in (jnp.eye, jnp.identity, jnp.tri):
        with pytest.raises(pl.PalladioError) as caught:
            function(size)
        assert isinstance(caught.value, TypeError) and "test_static_arguments.py" in str(caught.value)


@pytest.mark.parametrize("size", ["three", None, [1], 1j, 2.5], ids=repr)
def test_arithmetic_of_sizes_takes_integers(size: Any) -> None:
    for use in (lambda: pl.cdiv(size, 2), lambda: pl.align_to(4, size), lambda: pl.next_power_of_2(size)):
        with pytest.raises(pl.PalladioTypeError, match="a size is an integer") as caught:
            use()
        assert "test_static_arguments.py" in str(caught.value)
    with pytest.raises(pl.PalladioTypeError, match="a shape is integers"):
        pl.strides_from_shape((2, size))  # type: ignore[arg-type]


def test_a_static_name_that_no_argument_has() -> None:
    def scaled(x: Any, block: int = 8) -> Any:
        return x * block

    with shows(
        ValueError,
        """
        static_argnames: scaled has no parameter of this name
          expected: x, block
          got:      'blok'
          hint:     did you mean block?
          test_static_arguments.py:N, in test_a_static_name_that_no_argument_has
            pl.jit(scaled, static_argnames=["blok"])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(scaled, static_argnames=["blok"])
    pl.jit(lambda **options: None, static_argnames="blok")
