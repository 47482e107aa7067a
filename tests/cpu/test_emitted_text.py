"""The LLVM text of a stored corpus, kept by hash: a change that is to leave generated code alone shows that it does.

The corpus is the library's kernels at small sizes and every row of the conformance suite in one dtype, emitted for a
fixed processor, with tiles that do not depend on the caches of the host. A change that is meant to change code updates
the hashes, and its author reads the text before and after: `palladio show FILE.py::FUNCTION --stage llvm`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from palladio import library
from palladio.base import trees
from palladio.cli.show import STAGES
from palladio.cpu.runtime import host
from palladio.driver.compile import PIPELINES
from palladio.driver.executors import CPU
from palladio.ir.core import Eqn, Program, subprograms
from palladio.library import hopper
from palladio.ops.grid import grid_call
from palladio.ops.threads.launch import launch
from palladio.passes import run_passes
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.types import ArrayType
from tests.conformance.test_conformance import ROWS

PROCESSOR = host.Processor.of("x86_64-unknown-linux-gnu", "x86-64-v3", "", host._V3)

F16, F32, BF16, I32 = dtypes.FLOAT16, dtypes.FLOAT32, dtypes.BFLOAT16, dtypes.INT32
SMALL = hopper.MatmulConfig(tile_m=64, tile_n=64, tile_k=64, stages=3, epilogue_n=32, blocks=4)


def _type(dtype: np.dtype, *shape: int) -> ArrayType:
    return ArrayType(shape, dtype)


LIBRARY: dict[str, tuple[Callable[..., Any], tuple[ArrayType, ...]]] = {
    "matmul": (partial(library.matmul, tiling=(128, 128, 128)), (_type(F32, 300, 200), _type(F32, 200, 260))),
    "matmul_bf16": (partial(library.matmul, tiling=(128, 128, 128)), (_type(BF16, 256, 256), _type(BF16, 256, 256))),
    "softmax": (partial(library.softmax, block_rows=32), (_type(F32, 100, 300),)),
    "attention": (partial(library.attention, block_q=64, block_k=64), (_type(F32, 1, 2, 256, 64),) * 3),
    "attention_causal": (
        partial(library.attention, causal=True, block_q=64, block_k=64),
        (_type(BF16, 1, 2, 256, 64),) * 3,
    ),
    "gmm": (
        partial(library.gmm, tiling=(128, 128, 128)),
        (_type(F32, 300, 256), _type(F32, 4, 256, 128), _type(I32, 4)),
    ),
    "gmm_bf16": (
        partial(library.gmm, tiling=(128, 128, 128)),
        (_type(BF16, 512, 256), _type(BF16, 4, 256, 256), _type(I32, 4)),
    ),
    "tgmm": (
        partial(library.tgmm, tiling=(128, 128, 128)),
        (_type(F32, 256, 300), _type(F32, 300, 128), _type(I32, 4)),
    ),
    "hopper.matmul": (partial(hopper.matmul, config=SMALL), (_type(BF16, 200, 256), _type(BF16, 256, 256))),
    "hopper.gmm": (
        partial(hopper.gmm, config=SMALL),
        (_type(BF16, 256, 128), _type(BF16, 4, 128, 128), _type(I32, 4)),
    ),
    "hopper.tgmm": (
        partial(hopper.tgmm, config=SMALL),
        (_type(BF16, 128, 256), _type(BF16, 256, 128), _type(I32, 4)),
    ),
    "hopper.attention": (hopper.attention, (_type(F16, 1, 2, 256, 64),) * 3),
}


def traced(function: Callable[..., Any], types: tuple[ArrayType, ...]) -> Program:
    """The program of a function of arrays."""
    return stage(lambda *values: trees.flatten(function(*values))[0], types, wrap, name="case").program


def _programs() -> Iterator[tuple[str, Program]]:
    for name, (function, types) in LIBRARY.items():
        yield name, traced(function, types)
    for row in ROWS:
        case = row.case(F32 if F32 in row.dtypes else row.dtypes[0])
        types = tuple(ArrayType(array.shape, array.dtype) for array in case.inputs)
        yield row.title, traced(case.call("cpu"), types)


def _calls(program: Program) -> Iterator[Eqn]:
    """The outermost kernel calls of a program."""
    for eqn in program.eqns:
        if eqn.op in (grid_call, launch):
            yield eqn
        else:
            for inner in subprograms(eqn):
                yield from _calls(inner)


def emitted(program: Program) -> list[str]:
    """The text of each kernel call of a program."""
    return [STAGES["llvm"].text(eqn) for eqn in _calls(run_passes(program, PIPELINES[CPU.name]))]


def test_the_emitted_text_is_the_known_one(golden: Callable[[str], None]) -> None:
    lines = []
    for name, program in _programs():
        with host.compiling_for(PROCESSOR):
            texts = emitted(program)
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
        lines.append(f"{name}: {digest}, {sum(text.count(chr(10)) for text in texts)} lines")
    golden("\n".join(lines))
