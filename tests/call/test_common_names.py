"""The smaller names of Pallas' own namespace: what they do, and why some are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from palladio.call.refused import COMMON
from tests.errors.shown import shows

X = np.arange(32, dtype=np.float32).reshape(4, 8)
OUT = pl.ShapeDtypeStruct((4, 8), np.float32)
DMA = pltpu.SemaphoreType.DMA


@pytest.mark.parametrize("name", sorted(COMMON))
def test_what_has_no_meaning_here_is_refused_by_name(name: str) -> None:
    with pytest.raises(pl.PalladioNotImplementedError, match=rf"^pl\.{name} "):
        getattr(pl, name)()


def test_an_unknown_name_is_not_an_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pallas'"):
        assert pl.pallas


def test_arrays_and_their_shapes_in_a_kernel() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.delay(10)
        pl.delay(pl.program_id(0))
        row = pl.broadcast_to(x_ref[0], (4, 8))
        nothing = pl.empty_like({"x": x_ref})["x"] + pl.empty((4, 8), np.float32)
        o_ref[...] = pl.reciprocal(row + 1, approx=True) + 0 * nothing

    expected = np.broadcast_to(1 / (X[0] + 1), X.shape)
    assert np.array_equal(pl.pallas_call(kernel, OUT, grid=(1,))(X), expected)


def test_empty_like_takes_trees_of_anything_with_a_shape() -> None:
    found = pl.empty_like((X, {"a": OUT}))
    assert found[0].shape == found[1]["a"].shape == (4, 8)
    with shows(
        TypeError,
        """
        x[0]: this has no shape and dtype
          got:      3
          test_common_names.py:N, in test_empty_like_takes_trees_of_anything_with_a_shape
            pl.empty_like([3])
            ^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.empty_like([3])


def test_a_delay_is_a_number_inside_a_kernel() -> None:
    with pytest.raises(pl.PalladioValueError, match="delay has a meaning only inside a kernel"):
        pl.delay(3)

    def kernel(o_ref: Any) -> None:
        pl.delay(0.5)

    with shows(
        TypeError,
        """
        nanos: a delay is a scalar integer, in nanoseconds
          got:      f32[]
          test_common_names.py:N, in kernel
            pl.delay(0.5)
            ^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)()


def choosing(target: bool, remote: bool = False) -> Any:
    def kernel(n_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any, p_ref: Any, semaphore: Any) -> None:
        o_ref[...] = x_ref[...] * 0
        p_ref[...] = x_ref[...] * 0
        source = pl.select_ref(n_ref[0], x_ref, y_ref)
        sink = pl.select_ref(n_ref[0], o_ref.at[...], p_ref) if target else o_ref
        copy = pltpu.make_async_copy(source, sink, semaphore)
        copy.start()
        copy.wait()

    return pl.pallas_call(kernel, (OUT, OUT), scratch_shapes=[DMA])


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("executor", ["reference", "cpu", "simulator"])
def test_a_copy_of_a_reference_that_is_chosen_while_it_runs(number: int, executor: str) -> None:
    n, zeros = np.array([number], np.int32), np.zeros_like(X)
    with pl.executor(executor):
        first, second = choosing(target=False)(n, X, X + 1)
        assert np.array_equal(first, X + number) and np.array_equal(second, zeros)
        found = choosing(target=True)(n, X, X + 1)
    assert np.array_equal(found[number], X + number) and np.array_equal(found[1 - number], zeros)


@pytest.mark.parametrize("executor", ["reference", "cpu", "simulator"])
def test_views_of_a_reference_that_is_chosen_while_it_runs(executor: str) -> None:
    def kernel(n_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any, semaphore: Any) -> None:
        chosen = pl.select_ref(n_ref[0], x_ref, y_ref)
        first, *others = o_ref.shape
        turned = chosen.transpose(1, 0).at[:first].reshape(first, -1).bitcast(np.int32).bitcast(o_ref.dtype)
        assert turned.shape == (first, *others) and turned.dtype == o_ref.dtype
        pltpu.async_copy(turned, o_ref, semaphore).wait()

    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((3, 4), np.float32), scratch_shapes=[DMA])
    with pl.executor(executor):
        for number in (0, 1):
            found = call(np.array([number], np.int32), x, x + 100)
            assert np.array_equal(found, x.T[:3] + 100 * number)


def test_a_number_that_is_known_is_the_reference_itself() -> None:
    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pl.select_ref(1, x_ref, y_ref)[...]

    assert np.array_equal(pl.pallas_call(kernel, OUT)(X, X + 1), X + 1)


def in_a_kernel(use: Any) -> Any:
    def kernel(n_ref: Any, x_ref: Any, o_ref: Any) -> None:
        use(n_ref[0], x_ref, o_ref)

    return pl.pallas_call(kernel, OUT)(np.zeros(1, np.int32), X)


def test_what_cannot_be_chosen_from() -> None:
    for use, kind, text in [
        (lambda n, x, o: pl.select_ref(n, x), ValueError, "refs: a choice is among at least two references"),
        (lambda n, x, o: pl.select_ref(n, x, X), TypeError, "refs[1]: this is not a reference"),
        (
            lambda n, x, o: pl.select_ref(n, x, x.at[0]),
            ValueError,
            "refs[1]: the references to choose from have one shape and dtype",
        ),
        (lambda n, x, o: pl.select_ref(1.5, x, o), TypeError, "idx: the number of a reference is a scalar integer"),
        (
            lambda n, x, o: pl.select_ref(n, x, o)[...],
            TypeError,
            "a reference that select_ref chooses is there for copies",
        ),
    ]:
        with pytest.raises(pl.PalladioError) as caught:
            in_a_kernel(use)
        assert isinstance(caught.value, kind)
        assert str(caught.value).startswith(text) and "test_common_names.py" in str(caught.value)
