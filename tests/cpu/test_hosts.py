"""Kernels compiled for the instructions of other processors: all that this host has, and 64-bit Arm.

The rest of the suite runs with what the host has natively.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
from palladio.base.errors import PalladioError, PalladioValueError
from palladio.call import staged
from palladio.cpu import engine
from palladio.cpu.launches import engine as launch_engine
from palladio.cpu.products import dot
from palladio.cpu.products.micro_kernel import STEPS_TOGETHER
from palladio.cpu.runtime import cpuid, host
from palladio.cpu.runtime.detected import Detected
from palladio.cpu.runtime.host import Processor
from palladio.cpu.runtime.machine_code import MachineCode, assembly
from palladio.driver.cache import PreparedCache
from palladio.library import matmul
from palladio.types import dtypes
from tests.conformance.rows import Row, fault
from tests.conformance.test_conformance import ROWS
from tests.cpu import test_vector_math as vector_math
from tests.pairs import every_pair

Array = Any

SETS = [name for name in host.available() if name != "native"]
"""The instruction sets that this host has."""

ARM = Processor.of("aarch64-unknown-linux-gnu", "generic", "", frozenset())


@pytest.fixture(params=SETS)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PALLADIO_CPU", request.param)
    return str(request.param)


@pytest.fixture
def nothing_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is prepared anew, whatever tests before it called."""
    monkeypatch.setattr(staged, "CALLS", PreparedCache())


# Which processor there is.


@pytest.mark.parametrize(
    ("instructions", "sums", "pairs", "tiles", "fuses"),
    [
        ("native", (14, 128), True, True, True),
        ("amx", (14, 128), True, True, True),
        ("avx512bf16", (14, 128), True, False, True),
        ("avx512", (14, 128), False, False, True),
        ("avx2", (6, 64), False, False, True),
        ("portable", (2, 64), False, False, False),
    ],
)
def test_what_a_processor_has(instructions: str, sums: tuple[int, int], pairs: bool, tiles: bool, fuses: bool) -> None:
    has = host._X86["amx"][2]
    native = Processor.of("x86_64-unknown-linux-gnu", "new", "", has)
    found = host.restricted(native, has, instructions)
    assert (found.sums, found.multiplies_pairs, found.fuses) == (sums, pairs, fuses)
    assert (found.multiplies_tiles, found.multiplies_quads) == (tiles, tiles)


def test_arm_has_more_registers_and_is_portable() -> None:
    assert ARM.sums == (6, 64)
    assert (ARM.fuses, ARM.converts_halves, ARM.multiplies_pairs) == (True, True, False)
    assert host.restricted(ARM, frozenset(), "portable") == ARM


def test_quads_of_integers_need_their_instruction_in_the_widest_registers() -> None:
    for has, quads in (({"avx512f", "avx512vnni"}, True), ({"avx512f"}, False), ({"avx", "avx512vnni"}, False)):
        assert Processor.of("x86_64-unknown-linux-gnu", "new", "", frozenset(has)).multiplies_quads == quads


@pytest.mark.parametrize("lacks", ["amx-tile", "amx-bf16", "amx-int8", "avx512bf16", "avx512vnni"])
def test_tile_registers_need_all_their_instructions_and_those_of_vectors(lacks: str) -> None:
    """Of a product on tile registers, some rows or columns may be multiplied as vectors."""
    has = host._X86["amx"][2] - {lacks}
    native = Processor.of("x86_64-unknown-linux-gnu", "new", "", has)
    assert not native.multiplies_tiles
    with pytest.raises(PalladioValueError, match="this processor does not have these instructions") as error:
        host.restricted(native, has, "amx")
    assert "amx" not in host._sets(native, has) and ", ".join(host._sets(native, has)) in str(error.value)


@pytest.mark.parametrize(
    ("has", "granted", "asked", "offered"),
    [("amx", True, 1, True), ("amx", False, 1, False), ("avx512bf16", True, 0, False)],
)
def test_tile_registers_are_used_if_the_system_grants_them(
    has: str, granted: bool, asked: int, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked only where the processor has them."""
    asks: list[bool] = []
    features = ",".join(f"+{each}" for each in host._X86[has][2])
    found = Detected("x86_64-unknown-linux-gnu", "new", features, "20.1.8")
    monkeypatch.setattr(host, "detected", lambda: found)
    monkeypatch.setattr(host, "request_tiles", lambda: asks.append(granted) or granted)
    native, features_found = host._native.__wrapped__()
    assert len(asks) == asked
    assert native.multiplies_tiles == offered
    assert ("amx" in host._sets(native, features_found)) == offered
    assert "avx512bf16" in host._sets(native, features_found)


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_tile_registers_are_not_asked_of_other_systems(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpuid.sys, "platform", system)
    monkeypatch.setattr(cpuid.ctypes, "CDLL", lambda name: pytest.fail("a Linux system call"))
    assert not cpuid.request_tiles()


@pytest.mark.parametrize(("answer", "granted"), [(0, True), (-1, False)])
def test_the_system_answers_whether_tile_registers_are_granted(
    answer: int, granted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, ...]] = []
    library = SimpleNamespace(syscall=lambda *numbers: calls.append(numbers) or answer)
    monkeypatch.setattr(cpuid.sys, "platform", "linux")
    monkeypatch.setattr(cpuid.ctypes, "CDLL", lambda name: library)
    assert cpuid.request_tiles() == granted
    assert calls == [(158, 0x1023, 18)]  # arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA


@pytest.mark.parametrize("instructions", ["amx", "avx512bf16", "avx512", "avx2"])
@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"])
def test_instructions_that_the_processor_lacks_are_an_error(triple: str, instructions: str) -> None:
    has = host._X86["portable"][2]
    native = Processor.of(triple, "old", "", has)
    with pytest.raises(PalladioValueError, match="this processor does not have these instructions") as error:
        host.restricted(native, has, instructions)
    assert "PALLADIO_CPU" in str(error.value) and "native, portable" in str(error.value)


def test_unknown_instructions_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_CPU", "mmx")
    with pytest.raises(PalladioValueError, match="PALLADIO_CPU"):
        host.current()


@pytest.mark.parametrize("title", ["arithmetic.add", "concurrent.named_barriers"])
def test_a_kernel_is_compiled_anew_for_other_instructions(
    title: str, monkeypatch: pytest.MonkeyPatch, made: list[MachineCode]
) -> None:
    (row,) = (row for row in ROWS if row.title == title)
    case = row.case(row.dtypes[-1])
    call = case.call("cpu")
    for name in (*SETS, *SETS):
        monkeypatch.setenv("PALLADIO_CPU", name)
        call(*case.inputs)
    assert [code.processor for code in made] == [host.restricted(*host._native(), name) for name in SETS]


# What its instructions are.

X = pl.ShapeDtypeStruct((42, 64), np.float32)
"""Rows that panels of 14, 6 and 2 fill, and columns that their vectors do: products have one micro-kernel each."""


def product(dtype: Any) -> Callable[[], None]:
    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    x, y = np.ones((42, 80), dtype), np.ones((80, 64), dtype)
    return lambda: pl.pallas_call(kernel, X, interpret="cpu")(x, y)


def softmax(x: Any, out: Any) -> None:
    power = jnp.exp(x[...] - jnp.max(x[...], axis=1, keepdims=True))
    out[...] = power / jnp.sum(power, axis=1, keepdims=True)


def halves(x: Any, out: Any) -> None:
    out[...] = (jnp.tanh(x[...]).astype(jnp.float16) * np.float16(3)).astype(jnp.float32)


PRODUCTS = ["f32 product", "bf16 product", "f16 product"]
KERNELS = {
    "f32 product": product(np.float32),
    "bf16 product": product(ml_dtypes.bfloat16),
    "f16 product": product(np.float16),
    "softmax": lambda: pl.pallas_call(softmax, X, interpret="cpu")(np.ones(X.shape, np.float32)),
    "float16": lambda: pl.pallas_call(halves, X, interpret="cpu")(np.ones(X.shape, np.float32)),
}


@pytest.fixture
def made(nothing_prepared: None, monkeypatch: pytest.MonkeyPatch) -> list[MachineCode]:
    """The machine code that a test makes."""
    found: list[MachineCode] = []

    class Noted(MachineCode):
        def __init__(self, *args: Any, **others: Any) -> None:
            found.append(self)  # before the code that is made meanwhile
            super().__init__(*args, **others)

    monkeypatch.setattr(engine, "MachineCode", Noted)
    monkeypatch.setattr(launch_engine, "MachineCode", Noted)
    return found


@pytest.mark.parametrize("kernel", KERNELS)
def test_only_instructions_of_the_set_are_used(kernel: str, instructions: str, made: list[MachineCode]) -> None:
    KERNELS[kernel]()
    (code,) = made
    text = code.assembly()
    widest = {"portable": "xmm", "avx2": "ymm"}.get(instructions, "zmm")
    assert f"%{widest}" in text
    assert not set(re.findall(r"%([xyz]mm)", text)) & {"xmm": {"ymm", "zmm"}, "ymm": {"zmm"}, "zmm": set()}[widest]
    assert ("vdpbf16ps" in text) == (instructions == "avx512bf16" and kernel == "bf16 product")
    assert ("tdpbf16ps" in text) == (instructions == "amx" and kernel in PRODUCTS)
    assert ("%k1" in text or "fmadd" in text or "vcvtps2ph" in text) <= (instructions != "portable")
    assert not re.findall(r"call\w*\s+\*?(?!multiply)\w*(?:fmaf?|hfsf2|sfhf2|rintf?|expf?)\b", text), "lane by lane"


def steps_of(text: str) -> str:
    """The innermost loop of the first micro-kernel for whole panels: the longest one without a label in it."""
    body = re.findall(r"^multiply_\w+x16_\w+:\n(.*?)^\s+ret", text, re.DOTALL | re.MULTILINE)[0]
    inside = r"^(\.L\w+):((?:(?!^\.L).)*?)^\s+(?:j(?!mp)\w+|b\.\w+|cbn?z)\b[^\n]*\1$"
    return max((str(steps) for _, steps in re.findall(inside, body, re.DOTALL | re.MULTILINE)), key=len)


@pytest.mark.parametrize("kernel", PRODUCTS)
def test_the_sums_of_a_product_stay_in_registers(kernel: str, instructions: str, made: list[MachineCode]) -> None:
    KERNELS[kernel]()
    assert not re.search(r"mov\w+\s+%[xyz]mm\d+, .*\(%r[sb]p\)", steps_of(made[0].assembly()))


@pytest.fixture
def by_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of float32 are those of vectors, also where there are tile registers."""
    monkeypatch.setattr(dot, "LEAST_DEPTH_SPLIT", 1 << 20)


@pytest.mark.usefixtures("by_vectors")
def test_a_step_has_few_instructions_beside_its_products(instructions: str, made: list[MachineCode]) -> None:
    """Processors that multiply two vectors a cycle execute four to six instructions in one: 56 for 28 products.

    Half of the elements of a step are operands in memory, which take no instructions if one register addresses them.
    Narrow vectors have 12 products for two vectors and six elements that are loaded: 24 with the end of the loop.
    """
    KERNELS["f32 product"]()
    steps = [line.strip() for line in steps_of(made[0].assembly()).splitlines() if line.strip(" \t#NO_AP")]
    products = {"portable": 8, "avx2": 12}.get(instructions, 28)
    assert sum(bool(re.search("fmadd|mulps", line)) for line in steps) == products * STEPS_TOGETHER
    assert len(steps) < {"portable": 56, "avx2": 24}.get(instructions, 44) * STEPS_TOGETHER
    in_memory = [line for line in steps if re.search(r"fmadd\w+\s+-?\d*\(%\w+\)\{1to16\}", line)]
    assert len(in_memory) == (0 if instructions in ("portable", "avx2") else 14 * STEPS_TOGETHER)


@pytest.mark.usefixtures("by_vectors")
def test_micro_kernels_of_narrow_vectors_do_not_prefetch(instructions: str, made: list[MachineCode]) -> None:
    """A step of theirs is too short for that. Others prefetch the next block, a half of the next 14 rows in each of two
    calls, and the next sums.
    """
    x, y = np.ones((84, 64), np.float32), np.ones((64, 128), np.float32)
    matmul(x, y, tiling=(42, 64, 64), interpret="cpu")
    assert ("_ahead1_rows7(" in made[0].text) == instructions.startswith(("avx512", "amx"))


# What they compute.


TURNED = [
    ((7, 33, 17), True),
    ((30, 129, 100), False),
    ((30, 129, 100), True),
    ((1, 83, 67), False),
    ((1, 83, 67), True),
    ((67, 83, 3), False),
]
"""Shapes of products, each with whether its operands are given transposed."""


@pytest.mark.parametrize(
    ("product", "dtype", "instructions"),
    every_pair(TURNED, [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8], SETS),
    indirect=["instructions"],
)
def test_products(product: tuple[tuple[int, int, int], bool], dtype: Any, instructions: str) -> None:
    (rows, depth, columns), turned = product
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-8, 8, size).astype(dtype) for size in ((rows, depth), (depth, columns)))
    sums = np.float32 if dtypes.is_float(x.dtype) and x.itemsize < 4 else np.int32 if dtype is np.int8 else dtype

    def kernel(x_ref: Any, y_ref: Any, out: Any) -> None:
        left, right = (x_ref[...].T, y_ref[...].T) if turned else (x_ref[...], y_ref[...])
        out[...] = jnp.dot(left, right, preferred_element_type=sums)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((rows, columns), sums), interpret="cpu")
    given = (x.T.copy(), y.T.copy()) if turned else (x, y)
    # Sums of small integers are exact, whatever their order.
    np.testing.assert_array_equal(call(*given), x.astype(sums) @ y.astype(sums))


def every_half() -> Array:
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)


def test_every_float16_is_read(instructions: str) -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...].astype(jnp.float32)

    x = every_half()
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, np.float32), interpret="cpu")(x)
    expected = x.astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(expected)[number])


def test_float32_is_rounded_to_the_nearest_float16(instructions: str) -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...].astype(jnp.float16)

    halves = np.sort(every_half()[np.isfinite(every_half())]).astype(np.float32)
    between = (halves[1:] + halves[:-1]) / 2
    special = np.array([np.inf, -np.inf, np.nan, 65519.996, 65520, -65520, 3e38, 1e-45, -0.0, 2.0**-25], np.float32)
    near = [np.nextafter(between, np.float32(side)) for side in (-np.inf, np.inf)]
    x = np.concatenate([halves, between, *near, special])
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, np.float16), interpret="cpu")(x)
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(found.view(np.uint16)[number], expected.view(np.uint16)[number])
    assert np.isnan(found[~number]).all()


# One function on all sets after the other, since what it should be is kept for the last one only.
of_each_set = pytest.mark.parametrize("instructions", SETS, indirect=True)


@of_each_set
@pytest.mark.parametrize("name", vector_math.FUNCTIONS)
def test_functions_are_right_with_other_instructions(name: str, instructions: str) -> None:
    vector_math.test_float32_is_right_over_its_whole_range(name)


@of_each_set
@pytest.mark.parametrize("name", vector_math.WIDE)
def test_functions_of_float64_are_right_with_other_instructions(name: str, instructions: str) -> None:
    vector_math.test_float64_is_right_over_its_whole_range(name)


def rotated(row: Row, turn: int) -> np.dtype:
    """One of the dtypes of a row: another one for each row and each instruction set."""
    return row.dtypes[(ROWS.index(row) + turn) % len(row.dtypes)]


# What AVX-512 changes, `native` has shown where the host has it; only products know a second kind of it.
RUNS = [
    pytest.param(name, row, id=f"{name}-{row.title}")
    for name in SETS
    for row in ROWS
    if not name.startswith(("avx512", "amx")) or row.family in ("dot", "tensor_cores")
]


@pytest.mark.parametrize(("name", "row"), RUNS)
def test_conformance(name: str, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_CPU", name)
    case = row.case(rotated(row, SETS.index(name)))
    results = case.call("cpu")(*case.inputs)
    for number, (got, expected, wanted) in enumerate(zip(results, case.expected, case.outputs, strict=True)):
        found = fault(got, expected, wanted, case.slack)
        assert not found, f"output {number}: {found}"


# 64-bit Arm: what would run there is compiled here.


class Lowered(PalladioError):
    """Ends a call where machine code would be made."""


@pytest.fixture
def lowered_for_arm(
    nothing_prepared: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Callable[[], Any]], str]]:
    """The LLVM text of the first kernel that a call runs, as it is for 64-bit Arm."""
    texts: list[str] = []

    def note(text: str, **others: Any) -> None:
        texts.append(text)
        raise Lowered("this is all")

    monkeypatch.setattr(host, "_current", lambda instructions: ARM)
    monkeypatch.setattr(engine, "MachineCode", note)
    monkeypatch.setattr(launch_engine, "MachineCode", note)

    def lower(call: Callable[[], Any]) -> str:
        with pytest.raises(Lowered):
            call()
        return texts[-1]

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    yield lower


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_conformance_compiles_for_arm(row: Row, lowered_for_arm: Callable[[Callable[[], Any]], str]) -> None:
    case = row.case(rotated(row, len(SETS)))
    text = lowered_for_arm(lambda: case.call("cpu")(*case.inputs))
    assert "x86" not in text
    assert "kernel:" in assembly(text, ARM)


@pytest.mark.parametrize("kernel", ["f32 product", "bf16 product", "f16 product"])
def test_products_for_arm_fuse_and_keep_their_sums_in_registers(
    kernel: str, lowered_for_arm: Callable[[Callable[[], Any]], str]
) -> None:
    text = assembly(lowered_for_arm(KERNELS[kernel]), ARM)
    steps = steps_of(text)
    assert len(re.findall(r"\bfmla\b", steps)) == 24 * STEPS_TOGETHER
    assert "[sp" not in steps


def test_float16_is_converted_by_instructions_on_arm(lowered_for_arm: Callable[[Callable[[], Any]], str]) -> None:
    text = assembly(lowered_for_arm(KERNELS["float16"]), ARM)
    assert "fcvtn" in text and "fcvtl" in text
    assert not re.search(r"\bbl\s+", text)


def test_only_products_of_pairs_take_subnormals_for_zero(instructions: str) -> None:
    """VDPBF16PS does, so infinity times a subnormal is NaN there: the one difference that is not rounding."""

    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

    x, y = np.ones((32, 32), ml_dtypes.bfloat16), np.zeros((32, 32), ml_dtypes.bfloat16)
    x[3, 5], y[5, 7] = np.inf, 1e-39
    found = pl.pallas_call(kernel, pl.ShapeDtypeStruct((32, 32), np.float32), interpret="cpu")(x, y)
    if host.current().multiplies_pairs:
        assert np.isnan(found[3, 7]) and found[0, 7] == 0
    else:
        assert found[3, 7] == np.inf and found[0, 7] == np.float32(y[5, 7])
