"""Printing and checking in compiled kernels."""

from __future__ import annotations

import dis
import io
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio.cpu.runtime import callbacks

pytestmark = pytest.mark.filterwarnings("error")


def call(kernel: Any, x: Any, grid: tuple[int, ...] = (2,)) -> Any:
    spec = pl.BlockSpec((2,), lambda i: (i,))
    out = pl.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out, grid=grid, in_specs=[spec], out_specs=spec, interpret="cpu")(x)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_values_are_printed_as_by_the_evaluator(dtype: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...]
        pl.debug_print("step {}: {} {}", pl.program_id(0), x[0], o[...])

    x = np.array([0, 1, 2, 3]).astype(dtype)
    np.testing.assert_array_equal(call(kernel, x), x)
    printed = capsys.readouterr().out
    assert printed == "".join(f"step {n}: {x[2 * n]} {x[2 * n : 2 * n + 2]}\n" for n in range(2))


def test_what_is_printed_is_what_stood_there_then(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...]
        pl.debug_print("{}", o[0])
        o[...] = o[...] + 1.0
        pl.debug_print("{}", o[0])

    call(kernel, np.array([5, 6], np.float32), grid=(1,))
    assert capsys.readouterr().out == "5.0\n6.0\n"


def test_printing_under_a_condition_and_in_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...]

        @pl.loop(0, 4)
        def _(n: Any) -> None:
            @pl.when(n % 2 == 1)
            def _() -> None:
                pl.debug_print("{}", n)

    call(kernel, np.zeros(2, np.float32), grid=(1,))
    assert capsys.readouterr().out == "1\n3\n"


def test_a_check_that_fails_names_its_line_and_ends_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x: Any, o: Any) -> None:
        with pl.enable_debug_checks():
            pl.debug_check(x[0] < 2, "too large")  # here
        pl.debug_print("went on")
        o[...] = x[...]

    with pytest.raises(pl.PalladioError) as raised:
        call(kernel, np.arange(6, dtype=np.float32), grid=(3,))
    lines = str(raised.value).splitlines()
    assert lines[0] == "debug_check failed: too large"
    assert lines[-2].strip().endswith("# here")
    assert capsys.readouterr().out == "went on\n"


def test_what_printing_raises_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x: Any, o: Any) -> None:
        pl.debug_print("{}", x[0])
        o[...] = x[...]

    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(kernel, np.zeros(4, np.float32))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint16])
def test_a_broken_promise_is_told(dtype: Any) -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...] + pl.multiple_of(x[0], 4)

    kept = np.array([8, 1], dtype)
    np.testing.assert_array_equal(call(kernel, kept, grid=(1,)), kept + 8)
    with pytest.raises(pl.PalladioError, match="the promise of multiple_of is broken"):
        call(kernel, np.array([6, 1], dtype), grid=(1,))


def test_a_grid_size_below_one_is_refused_before_anything_runs() -> None:
    def kernel(x: Any, o: Any) -> None:
        o[...] = x[...]

    spec = pl.BlockSpec((2,), lambda i: (i,))
    staged = pl.jit(
        lambda steps, x: pl.pallas_call(
            kernel, pl.ShapeDtypeStruct((4,), np.float32), grid=(steps,), in_specs=[spec], out_specs=spec
        )(x),
        interpret="cpu",
    )
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(staged(np.int32(2), x), x)
    with pytest.raises(pl.PalladioError, match="a grid size is at least 1"):
        staged(np.int32(0), x)


def printing(x: Any, o: Any) -> None:
    pl.debug_print("{}", x[0])
    o[...] = x[...] + 1.0


def below_two(x: Any, o: Any) -> None:
    with pl.enable_debug_checks():
        pl.debug_check(x[0] < 2, "too large")
    o[...] = x[...] * 2.0


def test_what_prints_may_call_kernels_that_print_and_check(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([1, 3], np.float32)
    printed, found = [], []

    class Nested(io.StringIO):
        """Calls kernels when the outermost one prints."""

        def write(self, text: str) -> int:
            printed.append(text)
            if len(printed) == 1:
                found.append(call(printing, x, grid=(1,)))
                with pytest.raises(pl.PalladioError, match="debug_check failed: too large"):
                    call(below_two, x + 1, grid=(1,))
                found.append(call(below_two, x, grid=(1,)))
            return len(text)

    monkeypatch.setattr("sys.stdout", Nested())
    np.testing.assert_array_equal(call(printing, np.repeat(x, 2)), [2, 2, 4, 4])
    np.testing.assert_array_equal(found, [[2, 4], [2, 6]])
    assert "".join(printed) == "1.0" + "1.0\n" + "\n3.0\n"


def test_a_nested_call_that_fails_does_not_end_the_outer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str) -> None:
        with pytest.raises(pl.PalladioError, match="too large"):
            call(below_two, np.array([5, 6], np.float32), grid=(1,))

    monkeypatch.setattr("builtins.print", fails)
    np.testing.assert_array_equal(call(printing, np.zeros(4, np.float32)), [1, 1, 1, 1])


def test_an_interrupt_at_any_place_of_an_answer_ends_the_call_and_not_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the handler of a signal raises there reaches the caller, although compiled code is in between."""

    class Interrupt(BaseException):
        pass

    def passes(x: Any, o: Any) -> None:
        with pl.enable_debug_checks():
            pl.debug_check(x[0] < 2, "too large")
        o[...] = x[...]

    x = np.zeros(8, np.float32)
    call(passes, x, grid=(4,))
    places = 0
    while True:
        left = places

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename != callbacks.__file__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                offset = frame.f_lasti
                if dis.opname[frame.f_code.co_code[offset]] in ("JUMP_BACKWARD", "CALL", "RESUME"):
                    left -= 1
                    if left < 0:
                        raise Interrupt
            return trace

        try:
            sys._getframe().f_trace_opcodes = True  # Python 3.12 asks whether a frame has it when tracing begins
            sys.settrace(trace)
            call(passes, x, grid=(4,))
        except Interrupt:
            places += 1
        finally:
            sys.settrace(None)
        with pytest.raises(pl.PalladioError, match="too large"):
            call(passes, x + 3, grid=(4,))
        if left >= 0:
            break
    assert places > 10
