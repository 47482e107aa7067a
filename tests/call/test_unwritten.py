"""A kernel that never writes an output says so at its first call."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from tests.mpmd.calls import LEFT, RIGHT

OUT = pl.ShapeDtypeStruct((4,), np.float32)
X = np.arange(4, dtype=np.float32)


def forgets(x_ref: Any, o_ref: Any) -> None:
    o_ref = x_ref[...] * 2  # noqa: F841


@pytest.mark.parametrize("executor", ["reference", "cpu"])
def test_the_output_and_the_line_of_the_kernel_are_named_once(executor: str) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o = x_ref[...]  # noqa: F841

    call = pl.pallas_call(kernel, OUT, interpret=executor)
    with pytest.warns(pl.UnwrittenOutputWarning) as warned:
        call(X)
        call(X)
    assert [str(each.message) for each in warned] == [
        "the kernel kernel never writes to its output o_ref, whose values are uninitialised; "
        "o_ref[...] = value writes it"
    ]
    assert (warned[0].filename, warned[0].lineno) == (__file__, kernel.__code__.co_firstlineno)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(call(X)).all()


def test_kernels_of_equal_names_and_lines_in_two_files_are_both_named() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for file, body in (("one.py", "x_ref[0]"), ("other.py", "x_ref[1]")):
            names: dict[str, Any] = {}
            exec(compile(f"def kernel(x_ref, o_ref): {body}", file, "exec"), names)
            pl.pallas_call(names["kernel"], OUT)(X)
    assert [each.filename for each in warned] == ["one.py", "other.py"]


def test_an_output_without_a_parameter_of_its_own_is_named_by_its_number() -> None:
    def kernel(x_ref: Any, *outs: Any) -> None:
        outs[0][...] = x_ref[...]

    with pytest.warns(pl.UnwrittenOutputWarning, match=r"its output 1, whose .*; output\[\.\.\.\] = value writes it"):
        pl.pallas_call(kernel, [OUT, OUT])(X)


def test_an_output_that_is_only_read_is_not_written() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x_ref[...] + o_ref[...]

    with pytest.warns(pl.UnwrittenOutputWarning, match="its output o_ref"):
        pl.pallas_call(kernel, OUT)(X)


def test_a_call_in_a_staged_function_and_a_launch_say_so_too() -> None:
    with pytest.warns(pl.UnwrittenOutputWarning, match="the kernel staged never writes to its output o_ref"):
        pl.jit(lambda x: pl.pallas_call(forgets, OUT, name="staged")(x) + 1)(X)
    with pytest.warns(pl.UnwrittenOutputWarning, match="the kernel launched never writes to its output o_ref"):
        plgpu.kernel(forgets, OUT, name="launched")(X)


def when(x_ref: Any, o_ref: Any) -> None:
    @pl.when(x_ref[0] > 10)
    def write() -> None:
        o_ref[...] = x_ref[...]


def in_a_loop(x_ref: Any, o_ref: Any) -> None:
    @pl.loop(0, x_ref[0].astype(np.int32))
    def write(n: Any) -> None:
        o_ref[n] = x_ref[n]


def copied(x_ref: Any, o_ref: Any) -> None:
    pltpu.sync_copy(x_ref, o_ref)


def part(x_ref: Any, o_ref: Any) -> None:
    o_ref.at[1:3][0] = x_ref[0]


def scoped(x_ref: Any, o_ref: Any) -> None:
    def body(semaphore: Any) -> None:
        copy = pltpu.make_async_copy(x_ref, o_ref, semaphore)
        copy.start()
        copy.wait()

    pl.run_scoped(body, pltpu.SemaphoreType.DMA)


@pytest.mark.parametrize("kernel", [when, in_a_loop, copied, part, scoped])
def test_a_write_in_any_form_counts(kernel: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pl.UnwrittenOutputWarning)
        pl.pallas_call(kernel, OUT)(X)


def test_outputs_that_have_values_without_a_write_are_left_out() -> None:
    def nothing(*_: Any) -> None:
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("error", pl.UnwrittenOutputWarning)
        aliased = pl.pallas_call(nothing, OUT, input_output_aliases={0: 0})
        np.testing.assert_array_equal(aliased(X), X)
        assert pl.pallas_call(nothing, pl.ShapeDtypeStruct((0, 3), np.float32))(X).shape == (0, 3)
        assert pl.pallas_call(nothing, None)(X) is None


def test_one_of_several_programs_may_write_an_output() -> None:
    def left(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    def right(x_ref: Any, o_ref: Any) -> None:
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("error", pl.UnwrittenOutputWarning)
        np.testing.assert_array_equal(pl.mpmd_map([(LEFT, left), (RIGHT, right)], OUT)(X), X)
