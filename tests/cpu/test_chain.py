"""Programs of kernel calls alone run as one call, which reuses the memory between its steps."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.call.staged import CALLS
from palladio.cpu import chain
from palladio.cpu.chain import Chain
from palladio.cpu.executor import load_compiled
from palladio.cpu.runtime.native import SMALL_ARENA
from palladio.driver.capture import prepared_programs
from palladio.ir.core import Program
from palladio.ir.evaluate import DEFINITION, evaluate
from tests.one_point import as_compiled

ROWS, COLUMNS = 6, 4
X = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def copy_rows(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = x_ref[...] + 1


def first_rows(count: Any, x: Any) -> Any:
    """The first rows of x plus 1; the others are never written."""
    steps = jnp.sum(jnp.where(jnp.arange(3) < 1, count * 2 - count, 0)).astype(jnp.int32)
    row = pl.BlockSpec((1, COLUMNS), lambda i: (i, 0))
    return pl.pallas_call(
        copy_rows, pl.ShapeDtypeStruct(X.shape, X.dtype), grid=(steps,), in_specs=[row], out_specs=row
    )(x)


def program(function: Any, *arguments: Any) -> Program:
    CALLS.clear()
    with prepared_programs() as found:
        pl.jit(function)(*arguments)
    return as_compiled(found[-1])


def loaded(function: Any, *arguments: Any) -> Chain:
    found = load_compiled(program(function, *arguments), DEFINITION)
    assert isinstance(found, Chain)
    return found


def test_it_computes_what_the_evaluator_does_on_every_call() -> None:
    given = program(first_rows, np.int32(2), X)
    run = load_compiled(given, DEFINITION)
    assert isinstance(run, Chain)
    for count in (4, 6, 1, 3):  # rows that were written in one call have no values in the next one
        (out,) = run([np.int32(count), X])
        np.testing.assert_array_equal(out, evaluate(given, [np.int32(count), X])[0])
        assert np.isnan(out[count:]).all()


def test_the_memory_between_the_steps_is_kept() -> None:
    run = loaded(first_rows, np.int32(2), X)
    run([np.int32(2), X])
    (kept,) = run.idle
    run([np.int32(3), X])
    assert run.idle == [kept]


def test_each_result_is_an_array_of_its_own() -> None:
    run = loaded(first_rows, np.int32(6), X)
    (first,), (second,) = run([np.int32(6), X]), run([np.int32(6), 2 * X])
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, 2 * X + 1)


def test_results_are_written_to_the_arrays_of_the_caller() -> None:
    run = loaded(first_rows, np.int32(6), X)
    plain = np.empty_like(X)
    unaligned = np.empty(X.nbytes + 1, np.uint8)[1:].view(X.dtype).reshape(X.shape)
    for out in (plain, unaligned):
        assert run([np.int32(6), X], [out])[0] is out
        np.testing.assert_array_equal(out, X + 1)


def test_inputs_of_any_order_and_scalars_are_taken() -> None:
    run = loaded(first_rows, np.int32(6), X)
    np.testing.assert_array_equal(run([np.int32(6), np.asfortranarray(X)])[0], X + 1)


def test_memory_that_a_failed_call_worked_with_is_dropped() -> None:
    run = loaded(first_rows, np.int32(2), X)
    run([np.int32(2), X])
    with pytest.raises(pl.PalladioValueError, match="a grid size is at least 1") as raised:
        run([np.int32(0), X])
    assert raised.value.location is not None and raised.value.location.file == __file__
    assert not run.idle
    np.testing.assert_array_equal(run([np.int32(6), X])[0], X + 1)


def test_calls_of_several_threads_have_memory_of_their_own() -> None:
    run = loaded(first_rows, np.int32(6), X)
    wrong: list[int] = []

    def calls(number: int) -> None:
        for count in range(200):
            rows = 1 + (number + count) % ROWS
            (out,) = run([np.int32(rows), X * number])
            if not (out[:rows] == (X * number + 1)[:rows]).all() or not np.isnan(out[rows:]).all():
                wrong.append(number)

    threads = [threading.Thread(target=calls, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(run.idle) <= 4


@pytest.mark.parametrize(("rows", "is_chain"), [(1, True), (chain.KEPT_BYTES // (4 * COLUMNS) + 1, False)])
def test_what_has_much_memory_in_between_is_not_a_chain(rows: int, is_chain: bool) -> None:
    x = np.ones((rows, COLUMNS), np.float32)
    add_one = pl.pallas_call(copy_rows, pl.ShapeDtypeStruct(x.shape, x.dtype))
    run = load_compiled(program(lambda x: add_one(add_one(x)), x), DEFINITION)
    assert isinstance(run, Chain) == is_chain
    np.testing.assert_array_equal(run([x])[0], x + 2)


def test_another_shape_of_an_array_is_the_same_memory() -> None:
    add_one, add_one_to_all = (
        pl.pallas_call(copy_rows, pl.ShapeDtypeStruct(shape, X.dtype)) for shape in (X.shape, (X.size,))
    )

    def twice(x: Any) -> Any:
        return add_one(jnp.reshape(add_one_to_all(jnp.reshape(add_one(x), (-1,))), X.shape))

    np.testing.assert_array_equal(loaded(twice, X)([X])[0], X + 3)
    of_input = loaded(lambda x: add_one_to_all(jnp.reshape(x, (-1,))), X)
    np.testing.assert_array_equal(of_input([X])[0], X.ravel() + 1)
    shaped = program(lambda x: jnp.reshape(add_one(x), (-1,)), X)
    found = load_compiled(shaped, DEFINITION)
    assert not isinstance(found, Chain)  # the result's memory would have another shape
    np.testing.assert_array_equal(found([X])[0], X.ravel() + 1)


def test_a_program_that_returns_an_input_is_no_chain() -> None:
    given = program(lambda count, x: (first_rows(count, x), x), np.int32(2), X)
    assert not isinstance(load_compiled(given, DEFINITION), Chain)


def test_the_function_that_enters_a_chain_owns_its_definition() -> None:
    run = loaded(first_rows, np.int32(6), X)
    run([np.int32(6), X])
    enter = [function for work in run.idle for function in work.enter]
    run.idle.clear()
    gc.collect()
    assert [function.__name__ for function in enter] == ["run"] * 2  # Python reads it to free the function, too


def test_one_kernel_alone_runs_as_a_chain_with_copies_of_what_has_gaps() -> None:
    call = pl.pallas_call(copy_rows, pl.ShapeDtypeStruct(X.shape, X.dtype), interpret="cpu")
    wide = np.repeat(X, 2, axis=1)
    unaligned = np.empty(X.nbytes + 1, np.uint8)[1:].view(X.dtype).reshape(X.shape)
    unaligned[...] = X
    for given in (X, wide[:, ::2], unaligned, np.asfortranarray(X), X):
        np.testing.assert_array_equal(call(given), X + 1)
        out = np.empty(X.nbytes + 1, np.uint8)[1:].view(X.dtype).reshape(X.shape)
        assert call(given, out=out) is out
        np.testing.assert_array_equal(out, X + 1)


def test_one_kernel_alone_with_much_memory_is_a_chain_that_keeps_none_of_it() -> None:
    x = np.arange(128 * 128, dtype=np.float32).reshape(128, 128) % 7

    def square(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.dot(x_ref[...], x_ref[...])

    run: Any = load_compiled(program(pl.pallas_call(square, pl.ShapeDtypeStruct(x.shape, x.dtype)), x), DEFINITION)
    assert isinstance(run.chain, Chain) and run.direct is run.chain
    np.testing.assert_array_equal(run([x])[0], x @ x)
    (work,) = run.chain.idle
    assert run.native.run.compiled.arena > SMALL_ARENA and work.calls.memory is None


def test_a_call_that_only_the_evaluator_explains_is_left_to_it() -> None:
    def fills(out: Any) -> None:
        out[...] = jnp.ones(out.shape, np.int32)

    def kernel(count: Any, out: Any) -> None:
        out[...] = pl.pallas_call(fills, pl.ShapeDtypeStruct((1,), np.int32), grid=(count[0],))()

    one = pl.pallas_call(kernel, pl.ShapeDtypeStruct((1,), np.int32))
    run = loaded(lambda count: one(one(count)), np.array([2], np.int32))
    np.testing.assert_array_equal(run([np.array([2], np.int32)])[0], [1])
    for out in (None, [np.zeros(1, np.int32)]):
        with pytest.raises(ValueError, match="a grid size is at least 1"):
            run([np.array([0], np.int32)], out)
