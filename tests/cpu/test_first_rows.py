"""A function staged ahead for many rows, called for fewer: blocks of rows are computed where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.cpu import first_rows
from tests.library.references import normal

ROWS, COLUMNS = 32, 24


def staged(kernel: Any, blocks: Any, grid: tuple[int, ...] = (8,), shapes: Any = None, out: Any = None) -> Any:
    """A kernel over blocks of inputs and of an output, staged ahead for `ROWS` rows."""
    shapes = shapes or [(ROWS, COLUMNS)] * (len(blocks) - 1)
    call = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(out or (ROWS, COLUMNS), np.float32),
        grid=grid,
        in_specs=blocks[:-1],
        out_specs=blocks[-1],
    )

    def run(*arrays: Any) -> Any:
        return call(*arrays)

    with pl.executor("cpu"):
        return pl.jit(run).ahead(*(pl.ShapeDtypeStruct(each, np.float32) for each in shapes))


def numbered(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = 2 * x_ref[...] + pl.program_id(0)


BLOCK = pl.BlockSpec((4, COLUMNS), lambda i: (i, 0))
WHOLE = normal(0, ROWS, COLUMNS)
TWICE = 2 * WHOLE + np.repeat(np.arange(8, dtype=np.float32), 4)[:, None]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that are copied, of each call that runs in place."""
    found: list[int] = []
    run_rest = first_rows.FirstRows.run_rest

    def noting(self: Any, arrays: Any, results: Any, first: int, sizes: Any) -> None:
        found.append(len(results[0]) - first)
        run_rest(self, arrays, results, first, sizes)

    monkeypatch.setattr(first_rows.FirstRows, "run_rest", noting)
    return found


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("rows", [4, 7, 20, 29, 31])
def test_only_the_rows_of_a_last_block_are_copied(
    rows: int, threads: str, copied: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", threads)
    call = staged(numbered, [BLOCK, BLOCK])
    np.testing.assert_array_equal(call(WHOLE[:rows], rows=rows), TWICE[:rows])
    assert copied == ([rows % 4] if rows % 4 else [])


def test_rows_after_those_of_the_arrays_are_not_touched(copied: list[int]) -> None:
    memory = np.full((2, ROWS, COLUMNS), np.float32(7))
    memory[0, :9] = WHOLE[:9]
    call = staged(numbered, [BLOCK, BLOCK])
    out = memory[1, :9]
    assert call(memory[0, :9], rows=9, out=out) is out
    np.testing.assert_array_equal(out, TWICE[:9])
    assert copied == [1] and (memory[1, 9:] == 7).all()


def test_rows_of_a_copy_are_zero_after_those_of_the_array(copied: list[int]) -> None:
    def mean(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = np.sum(x_ref[...], axis=0, keepdims=True) + np.zeros_like(out_ref[...])

    found = staged(mean, [BLOCK, BLOCK])(WHOLE[:6], rows=6)
    np.testing.assert_allclose(found[4:], np.broadcast_to(WHOLE[4:6].sum(axis=0), (2, COLUMNS)), rtol=1e-5)
    assert copied == [2]


def test_what_no_step_has_written_is_uninitialised(copied: list[int]) -> None:
    def even(x_ref: Any, out_ref: Any) -> None:
        @pl.when(pl.program_id(0) % 2 == 0)
        def store() -> None:
            out_ref[...] = x_ref[...]

    call = staged(even, [BLOCK, BLOCK])
    for rows in (13, 14, 18):
        expected = np.where((np.arange(rows) // 4 % 2 == 0)[:, None], WHOLE[:rows], np.nan)
        np.testing.assert_array_equal(call(WHOLE[:rows], rows=rows), expected)
    assert copied == [1, 2, 2]


def test_one_row_a_block_and_further_axes_of_tasks_and_steps(copied: list[int]) -> None:
    def product(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def start() -> None:
            out_ref[...] = np.zeros_like(out_ref[...])

        out_ref[...] += x_ref[...] @ y_ref[...]

    x, y = normal(1, 8, 6, 8), normal(2, 8, 4)
    call = staged(
        product,
        [
            pl.BlockSpec((None, 3, 4), lambda i, j, step: (i, j, step)),
            pl.BlockSpec((4, 4), lambda i, j, step: (step, 0)),
            pl.BlockSpec((None, 3, 4), lambda i, j, step: (i, j, 0)),
        ],
        (8, 2, 2),
        [x.shape, y.shape],
        (8, 6, 4),
    )
    for rows in (1, 5):
        np.testing.assert_allclose(call(x[:rows], y, rows=rows), x[:rows] @ y, rtol=1e-4, atol=1e-5)
    assert call._first_rows is not None and copied == []


OTHERS = {
    "blocks in another order": (numbered, [BLOCK, pl.BlockSpec((4, COLUMNS), lambda i: (7 - i, 0))]),
    "all rows in each block": (numbered, [pl.BlockSpec((ROWS, COLUMNS), lambda i: (0, 0)), BLOCK]),
    "blocks of other sizes": (numbered, [pl.BlockSpec((1, COLUMNS), lambda i: (i, 0)), BLOCK]),
    "steps in order": (numbered, [BLOCK, pl.BlockSpec((4, COLUMNS), lambda i: (i // 2, 0))]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_kernels_get_copies_of_all_rows(case: str) -> None:
    kernel, blocks = OTHERS[case]
    if case == "all rows in each block":

        def kernel(x_ref: Any, out_ref: Any) -> None:
            out_ref[...] = x_ref[pl.ds(4 * pl.program_id(0), 4), :] + np.sum(x_ref[...])

    call = staged(kernel, blocks)
    padded = np.zeros_like(WHOLE)
    padded[:9] = WHOLE[:9]
    np.testing.assert_array_equal(call(WHOLE[:9], rows=9), call(padded)[:9])


def test_arrays_of_another_number_of_rows_are_refused() -> None:
    call = staged(numbered, [BLOCK, BLOCK])
    with pytest.raises(pl.PalladioValueError, match="not an array that the function was staged for"):
        call(normal(0, 9, COLUMNS + 1), rows=9)
    with pytest.raises(pl.PalladioValueError, match="not an array that the function was staged for"):
        call(np.concatenate([WHOLE, WHOLE]))
    assert call(WHOLE[:7], rows=9).shape == (9, COLUMNS)


def test_rows_that_a_checked_input_lacks_are_zero() -> None:
    """They are not those outside of its type, which stay uninitialised: the first block begins a row before it."""

    def plus(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] + y_ref[...]

    row = pl.BlockSpec((1, COLUMNS), lambda i: (i, 0))
    before = pl.BlockSpec((pl.Element(1, (1, 1)), COLUMNS), lambda i: (i, 0))
    call = staged(plus, [row, before, row], (ROWS,), [(ROWS, COLUMNS), (ROWS - 1, COLUMNS)])
    assert call._first_rows.checked == {1}
    y = normal(3, ROWS - 1, COLUMNS)
    y[20:] = 0
    expected = call(WHOLE, y)
    assert np.isnan(expected[0]).all() and np.isfinite(expected[1:]).all()
    for rows in (ROWS, 25, 17):
        np.testing.assert_array_equal(call(WHOLE[:rows], y[:20], rows=rows), expected[:rows])


@pytest.mark.parametrize("number", [np.int64(9), np.uint8(9), np.array(9)], ids=repr)
def test_a_number_of_rows_is_any_integer(number: Any) -> None:
    np.testing.assert_array_equal(staged(numbered, [BLOCK, BLOCK])(WHOLE[:9], rows=number), TWICE[:9])


@pytest.mark.parametrize("rows", [ROWS + 8, -1, 2.0, True, np.array([4, 5])], ids=repr)
def test_no_rows_are_given_that_the_result_does_not_have(rows: Any) -> None:
    call, x = staged(numbered, [BLOCK, BLOCK]), normal(4, ROWS + 8, COLUMNS)
    with pytest.raises(pl.PalladioValueError) as raised:
        call(x, rows=rows)
    assert str(raised.value).startswith(
        f"rows: not a number of rows that the result has\n  expected: an integer from 0 to 32\n  got:      {rows!r}\n"
    )


def test_what_is_not_an_array_is_refused_with_and_without_a_number_of_rows() -> None:
    call = staged(numbered, [BLOCK, BLOCK])
    for options in ({}, {"rows": 4}):
        with pytest.raises(pl.PalladioTypeError, match="neither an array nor a number"):
            call(WHOLE[:4].tolist(), **options)
