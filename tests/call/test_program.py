"""`pallas_call(...).program` shows a kernel's program."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
from palladio.ir.text import print_program

STRUCT = pl.ShapeDtypeStruct((4,), np.float32)


def double(x: Any, out: Any) -> None:
    out[...] = x[...] * 2


def test_the_program_of_a_call_is_the_kernels() -> None:
    text = """
program double(i0:i32[], x:ref<any, f32[2]>, out:ref<any, f32[2]>) {
  a:f32[2] = load x
  b:f32[2] = mul a, 2.0:f32
  store out, b
  return
}
"""
    spec = pl.BlockSpec((2,), lambda i: (i,))
    call = pl.pallas_call(double, STRUCT, grid=(2,), in_specs=[spec], out_specs=spec)
    assert print_program(call.program(np.zeros(4, np.float32))).strip() == text.strip()
    assert print_program(call.program(STRUCT)).strip() == text.strip()


def test_the_body_of_a_loop_keeps_its_name() -> None:
    def kernel(out: Any) -> None:
        @pl.loop(0, 2)
        def step(i: Any) -> None:
            out[...] = np.float32(1)

    assert "body=program step(" in print_program(pl.pallas_call(kernel, STRUCT).program())


def test_a_program_shows_as_its_text() -> None:
    program = pl.pallas_call(double, STRUCT).program(STRUCT)
    assert repr(program) == print_program(program)
