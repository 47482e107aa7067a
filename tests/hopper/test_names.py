"""Names that users give are safe in the text of a kernel, whatever they mean in C++, in CUDA or in the text itself."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import palladio.gpu as plgpu
from palladio.base.errors import PalladioNotImplementedError, PalladioValueError
from palladio.driver.compile import PIPELINES
from palladio.hopper import kernels
from palladio.hopper.compile import compiled
from palladio.hopper.emit.names import identifier, is_reserved, kernel_name, quoted
from palladio.hopper.emit.text import NUMBERS
from palladio.hopper.emit.writer import Writer
from palladio.hopper.twin.run import SCHEDULES
from palladio.ops.kernel_calls import is_kernel_call
from palladio.passes import run_passes
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import ArrayType
from tests.conformance.rows import Row
from tests.conformance.test_conformance import ROWS
from tests.hopper.kernels import F32, kernel, lowered, normal, on_twin


def words_in(text: str) -> list[str]:
    return text.split()


KEYWORDS = words_in("""
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace
new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return
short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef
typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
""")
"""The keywords of C++20: ISO/IEC 14882:2020, [lex.key], tables 5 and 6."""

CUDA = words_in("""
threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 float4 half2 size_t int32_t uint64_t __global__ __shared__
expf exp sqrtf fabsf powf log1pf erfinvf fma fminf norm3d rsqrt sincospi min max abs printf malloc free memcpy assert
clock64 atomicAdd make_float4 tex2D cudaMalloc NULL NAN INFINITY INT_MAX CUDART_VERSION __FILE__ __LINE__
""")

TEXT = words_in("""
smem warpgroup thread warp lane pal twin std main kernel u8 u16 u32 u64 i64 u32x2 u32x4 TensorMap PAL_KERNEL PAL_NAN
r t e at at0 at1 own0 other other0 along candidate best bits byte byte_at element end first held inside left right place
rank row seen step sum total turn value index size0 size1 array0 array1 array2 v v_2 x x_2 i i_2 i0 loaded carry moved
semaphores block x_boxes x_boxes_2 y_boxes loaded_phases
""")
"""Names of the header, and those that the text of a kernel gives to its own variables and parameters."""

OTHERS = ["α", "größe", "数", "a b", "a-b", "1st", "_x", "__x__", "it's", "x\ny", 'say "hello"', "back\\slash"]

WORDS = [*KEYWORDS, *CUDA, *TEXT, *OTHERS]
"""Names; arrays of scratch may have any string for one."""

KINDS = [plgpu.SMEM((128,), F32), plgpu.GMEM((128,), F32), plgpu.Barrier()]


def kinds_of(turn: int, words: list[str]) -> dict[str, Any]:
    return {word: KINDS[(number + turn) % 3] for number, word in enumerate(words)}


def named(scratch: dict[str, Any]) -> Any:
    """A kernel with a buffer, a parameter or barriers of each name."""

    def body(added: Any, start: Any, result: Any, **given: Any) -> None:
        result[...] = start[...]
        for word in scratch:
            if given[word].shape:
                given[word][...] = added[...] + 1
                result[...] = result[...] + given[word][...]
            else:
                plgpu.barrier_arrive(given[word])
                plgpu.barrier_wait(given[word])

    return kernel(body, (128,), scratch=scratch)


@pytest.mark.parametrize("turn", range(3))
def test_buffers_parameters_and_barriers_have_any_name(turn: int) -> None:
    """Every word is a parameter once. Names of the other kinds are in comments and before `_phases`, and some of them
    are left out there."""
    scratch = kinds_of(turn, WORDS)
    for word in [*KEYWORDS, *CUDA][turn % 2 :: 2]:
        if scratch[word] != KINDS[1]:
            del scratch[word]
    x, y = normal(128, dtype=F32), normal(128, dtype=F32, seed=1)
    total = y.copy()
    for kind in scratch.values():
        if kind != KINDS[2]:
            total = total + (x + 1)
    (found,) = on_twin(named(scratch), x, y, schedules=SCHEDULES[:1])
    np.testing.assert_array_equal(found, total)


@pytest.mark.parametrize("turn", range(3))
def test_the_compiler_for_the_card_takes_any_name(turn: int) -> None:
    x = normal(128, dtype=F32)
    assert compiled(lowered(named(kinds_of(turn, WORDS[turn::4])), x, x)).warnings == ()


def operands(thread: Any, size0: Any, class_: Any, expf: Any, lane_boxes: Any, out: Any) -> None:
    smem, blockIdx = np.float32(2), thread[...] + size0[...]
    out[...] = (blockIdx * smem + class_[...]) * np.exp(expf[...]) + lane_boxes[...]


def test_operands_have_any_name() -> None:
    inputs = [normal(64, dtype=F32, seed=seed) for seed in range(5)]
    a, b, c, d, e = inputs
    made = kernel(operands, (64,))
    for found in on_twin(made, *inputs):
        np.testing.assert_allclose(found, ((a + b) * 2 + c) * np.exp(d) + e, rtol=1e-6)
    assert compiled(lowered(made, *inputs)).warnings == ()


def copied(lane: Any, lane_boxes: Any, out: Any, tile: Any, lane_boxes_2: Any, full: Any) -> None:
    """A tensor map of an operand has the name of another one."""
    plgpu.copy_gmem_to_smem(lane, tile, full)
    plgpu.barrier_wait(full)
    plgpu.copy_gmem_to_smem(lane_boxes, lane_boxes_2, full)
    plgpu.barrier_wait(full)
    out[...] = tile[...] - lane_boxes_2[...]


def test_tensor_maps_have_names_of_their_own() -> None:
    x, y = normal(8, 64, dtype=F32), normal(8, 64, dtype=F32, seed=1)
    tile = plgpu.SMEM((8, 64), F32)
    for found in on_twin(kernel(copied, (8, 64), scratch=[tile, tile, plgpu.Barrier()]), x, y):
        np.testing.assert_array_equal(found, x - y)


@pytest.mark.parametrize("word", [*KEYWORDS, *CUDA, *(word for word in TEXT if is_reserved(word)), *OTHERS])
def test_a_kernel_has_a_name_of_its_own(word: str) -> None:
    found, plain = kernel_name(word), identifier(word, "k") or "kernel"
    assert re.fullmatch(r"[A-Za-z]\w*", found, re.ASCII)
    assert found == (f"{plain}_" if is_reserved(plain) else plain)


@pytest.mark.parametrize("word", ["expf", "float4", "memcpy", "size_t", "class", "atomicAdd", "NULL", "threadIdx", "α"])
def test_the_compiler_for_the_card_takes_any_kernel(word: str) -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...] + 1

    body.__name__ = word
    x = normal(128, dtype=F32)
    found = lowered(kernel(body, (128,)), x)
    assert found.name == kernel_name(word)
    assert compiled(found).warnings == ()
    np.testing.assert_array_equal(on_twin(kernel(body, (128,)), x)[0], x + 1)


def test_names_stay_readable() -> None:
    assert [identifier(each) for each in ("x_ref", "größe", "a b", "1st", "α")] == ["x_ref", "groe", "a_b", "v1st", ""]
    assert [kernel_name(each) for each in ("matmul", "expf", "3d", "α")] == ["matmul", "expf_", "k3d", "kernel"]
    assert quoted('a "b"\\c\n') == '"a \\"b\\"\\\\c\\012"'


def test_the_numbers_of_a_thread_are_reserved() -> None:
    assert all(map(is_reserved, NUMBERS))


STRINGS = r'"(?:\\.|[^"\\])*"'
TOKENS = re.compile(rf"{STRINGS}|//.*|(?:pal::|\.)\s*\w+|0x\w+|\d[\w.]*(?:e[+-]\d+f?)?|[A-Za-z_]\w*")


def words_of(text: str) -> set[str]:
    """The identifiers of a text, without members and functions of the header."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {each for line in lines for each in TOKENS.findall(line) if re.fullmatch(r"[A-Za-z_]\w*", each)}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.title) for row in ROWS])
def test_the_text_has_reserved_names_and_given_ones(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    given: set[str] = set()
    fresh = Writer.fresh

    def noted(self: Writer, *hints: str) -> str:
        name = fresh(self, *hints)
        given.add(name)
        return name

    case = row.case(row.dtypes[0])
    types = [ArrayType(array.shape, array.dtype) for array in case.inputs]
    program = run_passes(stage(case.call("reference"), types, wrap, name="case").program, PIPELINES["hopper-twin"])
    monkeypatch.setattr(Writer, "fresh", noted)
    for eqn in filter(is_kernel_call, program.eqns):
        given.clear()
        try:
            found = kernels.lowered(eqn)
        except (PalladioNotImplementedError, PalladioValueError):
            continue  # `tests/conformance/executors.py` has the reason
        given |= {each.name for each in found.parameters} | {found.name}
        assert {word for word in words_of(found.text) - given if not is_reserved(word)} <= {"__FILE__", "__LINE__"}
