"""A call like the one before it is repeated without its key; any other one is looked up or prepared."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
from palladio.call.ahead import forget_calls
from palladio.call.staged import CALLS
from palladio.driver.executors import EXECUTORS

X = np.arange(8, dtype=np.float32)
FACTOR: Any = 2


def scale(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * FACTOR


def plus(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + y_ref[...]


def call_of(kernel: Any = scale, interpret: Any = "cpu", **options: Any) -> Any:
    return pl.pallas_call(kernel, pl.ShapeDtypeStruct(X.shape, X.dtype), interpret=interpret, **options)


@pytest.fixture(autouse=True)
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The keys that were looked up."""
    CALLS.clear()
    found: list[Any] = []
    get = CALLS.get
    monkeypatch.setattr(CALLS, "get", lambda key, build: found.append(key) or get(key, build))
    yield found
    CALLS.clear()


@pytest.mark.parametrize("interpret", [None, "cpu", "reference"])
def test_the_same_call_is_looked_up_once(interpret: str | None, looked_up: list[Any]) -> None:
    call = call_of(interpret=interpret)
    results = [call(X + n) for n in range(5)]
    assert len(looked_up) == 1
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result, 2 * (X + n))
    results[0][...] = 0  # each is its own
    np.testing.assert_array_equal(results[1], 2 * (X + 1))


def test_several_results_have_their_structure(looked_up: list[Any]) -> None:
    def both(x_ref: Any, o_ref: Any, p_ref: Any) -> None:
        o_ref[...], p_ref[...] = x_ref[...] + 1, x_ref[...] + 2

    type_ = pl.ShapeDtypeStruct(X.shape, X.dtype)
    for out_shape in ((type_, type_), [type_, type_]):
        call = pl.pallas_call(both, out_shape, interpret="cpu")
        first, second = call(X), call(X)
        assert type(second) is type(first) and np.array_equal([*second], [*first])
    one = pl.pallas_call(scale, [type_], interpret="cpu")
    assert [(type(each), len(each)) for each in (one(X), one(X))] == [(tuple, 1)] * 2
    assert len(looked_up) == 3


OTHERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "a tensor": (lambda: torch.from_numpy(X), 2 * X),
    "another order": (lambda: np.repeat(X, 2)[::2], 2 * X),
    "a subclass": (lambda: X.view(type("Named", (np.ndarray,), {})), 2 * X),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_arguments_are_not_taken_for_the_same(name: str, looked_up: list[Any]) -> None:
    call = call_of()
    call(X), call(X)
    make, wanted = OTHERS[name]
    np.testing.assert_array_equal(np.asarray(call(make())), wanted)
    assert len(looked_up) == (1 if name == "another order" else 2)  # the executor copies that


def test_other_shapes_dtypes_and_orders() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].reshape(6).astype(np.float32)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((6,), np.float32), interpret="cpu")
    memory = np.arange(6, dtype=np.float32)
    swapped = memory.astype(">f4").reshape(2, 3)
    for given in (memory.reshape(2, 3), memory.reshape(3, 2).T, memory.reshape(3, 2), swapped, memory.astype(np.int32)):
        for _ in range(2):
            np.testing.assert_array_equal(call(given), given.reshape(6))


def test_an_array_for_the_result_is_written_and_checked(looked_up: list[Any]) -> None:
    call, out = call_of(), np.zeros_like(X)
    call(X), call(X)
    assert call(X, out=out) is out and np.array_equal(out, 2 * X)
    with pytest.raises(pl.PalladioValueError, match="overlaps an input"):
        call(X, out=X)
    with pytest.raises(pl.PalladioTypeError):
        call(X, X)


def test_changed_captures_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_of()
    call(X), call(X)
    monkeypatch.setitem(globals(), "FACTOR", 5)
    np.testing.assert_array_equal(call(X), 5 * X)
    monkeypatch.setitem(globals(), "FACTOR", np.float32(0.5))
    np.testing.assert_array_equal(call(X), 0.5 * X)


def test_what_has_no_key_is_never_repeated(looked_up: list[Any]) -> None:
    values = iter(range(10))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + next(values)

    call = call_of(kernel)
    with pytest.warns(pl.RetracedWarning):
        results = [call(X) for _ in range(3)]
    assert [int(result[0]) for result in results] == [0, 1, 2] and looked_up == [None] * 3


def test_the_executor_of_the_context_and_of_the_environment(
    looked_up: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = call_of(interpret=None)
    call(X), call(X)
    changed = {
        "PALLADIO_EXECUTOR": "reference",
        "PALLADIO_INSTRUCTIONS": "portable",
        "PALLADIO_NUM_THREADS": "3",
        "PALLADIO_DEBUG_CHECKS": "1",
    }
    for setting, value in changed.items():
        looked_up.clear()
        monkeypatch.setenv(setting, value)
        np.testing.assert_array_equal(call(X), 2 * X)
        assert looked_up, setting
        monkeypatch.delenv(setting)
    with pl.executor("reference"):
        looked_up.clear()
        call(X)
    assert looked_up


def test_debug_checks_that_are_turned_on_later_are_made() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_check(x_ref[0] > 0, "not positive")
        o_ref[...] = x_ref[...]

    call = call_of(kernel)
    call(X), call(X)
    with pl.enable_debug_checks(), pytest.raises(pl.DebugCheckError):
        call(X)
    call(X)


def test_another_executor_of_the_name_is_used(monkeypatch: pytest.MonkeyPatch, looked_up: list[Any]) -> None:
    call = call_of()
    call(X), call(X)
    looked_up.clear()
    monkeypatch.setitem(EXECUTORS, "cpu", EXECUTORS["reference"])
    np.testing.assert_array_equal(call(X), 2 * X)
    assert len(looked_up) == 1


def test_forgotten_calls_are_prepared_anew() -> None:
    call = call_of()
    call(X), call(X)
    before = CALLS.prepared
    forget_calls()
    call(X)
    assert CALLS.prepared == before + 1


def test_a_traced_call_is_an_equation(looked_up: list[Any]) -> None:
    call = call_of()
    call(X), call(X)
    staged = pl.jit(lambda x: call(call(x)))
    np.testing.assert_array_equal(staged(X), 4 * X)
    np.testing.assert_array_equal(pl.jit(lambda x: call(X) + x)(X), 3 * X)


def test_copies_of_a_call_remember_nothing_of_it(looked_up: list[Any]) -> None:
    call = call_of()
    call(X), call(X)
    for other in (copy.deepcopy(call), pickle.loads(pickle.dumps(call))):
        looked_up.clear()
        np.testing.assert_array_equal(other(X), 2 * X)
        assert len(looked_up) == 1


def test_a_function_that_captures_a_call_is_not_traced_again_when_that_was_called(looked_up: list[Any]) -> None:
    call = call_of()
    staged = pl.jit(lambda x: call(x) + 1)
    staged(X)
    before = CALLS.prepared
    for other in (X, X[:4].repeat(2)):
        call(other), call(other)
        np.testing.assert_array_equal(staged(X), 2 * X + 1)
    assert CALLS.prepared == before + 1  # the call alone


def test_an_error_of_a_repeated_call_names_the_place() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_check(x_ref[0] >= 0, "negative")
        o_ref[...] = x_ref[...]

    call = call_of(kernel)
    with pl.enable_debug_checks():
        call(X), call(X)
        with pytest.raises(pl.DebugCheckError) as first:
            call_of(kernel)(-1 - X)
        with pytest.raises(pl.DebugCheckError) as later:
            call(-1 - X)
    assert str(first.value).splitlines()[:3] == str(later.value).splitlines()[:3]
    np.testing.assert_array_equal(call(X), X)


def test_a_repeated_call_that_only_the_evaluator_explains_is_left_to_it() -> None:
    def fill(o_ref: Any) -> None:
        o_ref[...] = np.int32(1)

    def kernel(count_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pl.pallas_call(fill, pl.ShapeDtypeStruct((1,), np.int32), grid=(count_ref[0],))()

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((1,), np.int32), interpret="cpu")
    some, none = np.array([2], np.int32), np.array([0], np.int32)
    for _ in range(2):
        np.testing.assert_array_equal(call(some), [1])
        with pytest.raises(pl.PalladioValueError, match="a grid size is at least 1"):
            call(none)


def test_blocks_that_are_not_written_have_no_values_in_a_repeated_call() -> None:
    def first_block(x_ref: Any, o_ref: Any) -> None:
        @pl.when(x_ref[0] > 0)
        def store() -> None:
            o_ref[...] = x_ref[...]

    half = pl.BlockSpec((4,), lambda i: (i,))
    call = call_of(first_block, grid=(2,), in_specs=[half], out_specs=half)
    for _ in range(3):
        np.testing.assert_array_equal(call(X + 1), X + 1)
        found = call(X)
        assert np.isnan(found[:4]).all() and np.array_equal(found[4:], X[4:])


def test_several_threads_repeat_a_call() -> None:
    call = pl.pallas_call(plus, pl.ShapeDtypeStruct(X.shape, X.dtype), interpret="cpu")
    call(X, X)
    wrong: list[int] = []

    def work(number: int) -> None:
        y = np.full_like(X, number)
        wrong.extend(turn for turn in range(300) if not np.array_equal(call(X, y), X + number))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert wrong == []


def test_fields_that_are_arrays_are_captured() -> None:
    class Weights:
        def __init__(self) -> None:
            self.scale, self.shift = np.array([2.0, 2.0], np.float32), np.array([1.0, 1.0], np.float32)

    weights = Weights()

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * float(weights.scale[0]) + float(weights.shift[1])

    call = call_of(kernel)
    np.testing.assert_array_equal(call(X), 2 * X + 1)
    weights.scale[0] = 3
    np.testing.assert_array_equal(call(X), 3 * X + 1)
    weights.shift = np.array([0.0, 5.0], np.float32)
    np.testing.assert_array_equal(call(X), 3 * X + 5)
