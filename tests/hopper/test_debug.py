"""Printing and checks in kernels for Hopper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.base.errors import PalladioError
from palladio.hopper.compile import compiled
from palladio.hopper.inspect import disassembled, instructions
from palladio.hopper.twin.run import SCHEDULES, TwinError
from tests.hopper.kernels import F32, kernel, lowered, normal, on_twin

X = np.float32([2.5, -1, 3, 8])
PRINTED = 'at {} of {:5.2f}: {:<4d}| {:x}, {:+.1e}, {}, 100% "\\" \N{CHECK MARK}'


def printing(x: Any, out: Any) -> None:
    first, number = x[0], pl.axis_index("block") + 40
    pl.debug_print(PRINTED, number, first, number, number, first, first > 2)
    out[...] = x[...]


def blocks(body: Any) -> Any:
    return kernel(body, (4,), F32, grid=(2,), grid_names=("block",))


def test_a_thread_prints_for_all_that_run_the_program(capfd: pytest.CaptureFixture[str]) -> None:
    on_twin(blocks(printing), X, schedules=SCHEDULES[:1])
    wanted = sorted(PRINTED.format(n, X[0], n, n, X[0], True) for n in (40, 41))
    assert sorted(capfd.readouterr().out.splitlines()) == wanted


def test_each_warp_prints_that_is_a_thread_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    def body(x: Any, out: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            pl.debug_print("warp {}", warp)

        out[...] = x[...]

    on_twin(kernel(body, (4,), F32), X, schedules=SCHEDULES[:1])
    assert sorted(capfd.readouterr().out.splitlines()) == [f"warp {n}" for n in range(4)]


def checked(x: Any, out: Any) -> None:
    pl.debug_check(x[1] < 0, "the second one is negative")
    out[...] = x[...]


def test_a_check_that_fails_ends_the_kernel_where_it_stands() -> None:
    with pl.enable_debug_checks():
        call = kernel(checked, (4,), F32)
        np.testing.assert_array_equal(on_twin(call, X, schedules=SCHEDULES[:1])[0], X)
        with pytest.raises(TwinError, match=r"test_debug\.py:\d+: block 0, warp 0.*debug_check failed: the second one"):
            on_twin(call, -X, schedules=SCHEDULES[:1])


def test_a_check_that_is_off_is_not_there() -> None:
    assert "check_failed" not in lowered(kernel(checked, (4,), F32), X).text


def test_both_are_calls_of_the_driver_on_a_card() -> None:
    with pl.enable_debug_checks():
        found = [compiled(lowered(blocks(body), X)) for body in (printing, checked)]
    assert [each.warnings for each in found] == [(), ()]
    assert b"vprintf" in found[0].code and b"__assertfail" in found[1].code
    assert all(
        sum(n for name, n in instructions(disassembled(each.code)).items() if name.startswith("CALL")) for each in found
    )


@pytest.mark.parametrize(
    ("text", "value", "says"),
    [
        (
            "{}",
            lambda x: x[...],
            [
                "debug_print of an array is not compiled for Hopper",
                "got:      f32[4]",
                "hint:     print a number, e.g. jnp.sum(x) or a loaded element, or run on the simulator: "
                "interpret='simulator'",
            ],
        ),
        (
            "{:^8}",
            lambda x: jnp.sum(x[...]),
            [
                "debug_print on Hopper prints as printf does",
                "expected: {}, or a width, a precision and a type: {:5d}, {:.3f}, {:x}",
                "got:      {:^8}",
            ],
        ),
    ],
    ids=["array", "centred"],
)
def test_what_printf_does_not_have_is_refused(text: str, value: Any, says: list[str]) -> None:
    def body(x: Any, out: Any) -> None:
        pl.debug_print(text, value(x))
        out[...] = x[...]

    with pytest.raises(PalladioError) as caught:
        lowered(kernel(body, (4,), F32), normal(4, dtype=F32))
    lines = [line.strip() for line in str(caught.value).splitlines()]
    assert lines[: len(says)] == says
    assert "pl.debug_print(text, value(x))" in lines
