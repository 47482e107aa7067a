"""`jax.experimental.checkify`: checks of functions, eager and staged, and of the kernels that they call."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import compat
from tests.errors.shown import shows


@pytest.fixture
def jax() -> Iterator[Any]:
    with compat.jax():
        import jax
        import jax.experimental.checkify
    yield jax


def test_a_failed_check_is_a_value_beside_the_result(jax: Any) -> None:
    checkify = jax.experimental.checkify

    def root(x: Any) -> Any:
        checkify.check(x >= 0, "{} is negative, named {x}", x, x=x)
        checkify.check(x != 2, "two")
        return x + 1

    for f, words in ((root, "-3.0 is negative, named -3.0"), (jax.jit(root), "{} is negative, named {x}")):
        error, result = checkify.checkify(f)(np.float32(3))
        assert (error.get(), result) == (None, 4)
        error.throw()
        error, result = checkify.checkify(f)(np.float32(-3))
        assert (error.get(), result) == (words, -2)
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            error.throw()
        assert str(caught.value).splitlines()[0] == words
        assert checkify.checkify(f)(np.float32(2))[0].get() == "two"


def test_a_message_may_have_several_lines(jax: Any) -> None:
    checkify = jax.experimental.checkify

    def positive(x: Any) -> None:
        checkify.check(x > 0, "not\npositive")

    for f in (positive, jax.jit(positive)):
        assert checkify.checkify(f)(np.float32(-1))[0].get() == "not\npositive"


def test_checks_outside_of_checkify(jax: Any) -> None:
    checkify = jax.experimental.checkify
    checkify.check(np.bool_(True), "fine")
    checkify.debug_check(False, "left out")
    with pytest.raises(jax.errors.JaxRuntimeError, match="no 7"):
        checkify.check(False, "no {}", 7)
    with shows(
        ValueError,
        """
        pred: a check of traced values stands in a function under checkify
          got:      traced bool[]
          hint:     error, result = checkify.checkify(f)(x); error.throw()
          in JAX:   Cannot abstractly evaluate a checkify.check which was not functionalized.
          test_checkify.py:N, in <lambda>
            pl.jit(lambda x: checkify.check(x > 0, "positive"))(np.float32(1))
                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.jit(lambda x: checkify.check(x > 0, "positive"))(np.float32(1))


def test_other_errors_than_the_functions_own(jax: Any) -> None:
    with shows(
        NotImplementedError,
        """
        errors: the checks are those that the function makes itself
          expected: user_checks
          test_checkify.py:N, in test_other_errors_than_the_functions_own
            jax.experimental.checkify.checkify(abs, errors={"nan"})
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jax.experimental.checkify.checkify(abs, errors={"nan"})


def test_a_staged_function_is_not_kept_without_its_checks(jax: Any) -> None:
    checkify = jax.experimental.checkify

    @jax.jit
    def root(x: Any) -> Any:
        checkify.check(x >= 0, "negative")
        return x + 1

    error, _ = checkify.checkify(root)(np.float32(-3))
    assert error.get() == "negative"
    for checks in (False, True):
        with pl.enable_debug_checks(checks), pytest.raises(pl.PalladioValueError, match="under checkify"):
            root(np.float32(-3))


def test_a_checked_function_is_staged(jax: Any) -> None:
    checkify = jax.experimental.checkify

    @functools.partial(jax.jit, static_argnames="least")
    @checkify.checkify
    def root(x: Any, least: int) -> Any:
        checkify.check(jax.numpy.all(x >= least), "less than {}", least)
        return x + least

    error, result = root(np.arange(3, dtype=np.float32), least=0)
    assert (error.get(), result.tolist()) == (None, [0, 1, 2])
    error, result = root(np.arange(3, dtype=np.float32), least=1)
    assert (error.get(), result.tolist()) == ("less than 1", [1, 2, 3])
