"""Compiled kernels on disk: what is kept serves again, what is damaged is compiled again."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import palladio as pl
from palladio.cpu.runtime import elf, machine_code, native, unlocked
from palladio.cpu.runtime.detected import detected
from palladio.cpu.runtime.machine_code import MachineCode

TEXT = """
define i32 @kernel(ptr %arrays, ptr %sizes, ptr %arena, i64 %first, i64 %last) {
entry:
  %sum = add i64 %first, %last
  %result = trunc i64 %sum to i32
  ret i32 %result
}
"""

CALLS = """
define internal i64 @total(i64 %first, i64 %last) {
entry:
  %sum = add i64 %first, %last
  ret i64 %sum
}

define i32 @kernel(ptr %arrays, ptr %sizes, ptr %arena, i64 %first, i64 %last) {
entry:
  %sum = call i64 @total(i64 %first, i64 %last)
  %result = trunc i64 %sum to i32
  ret i32 %result
}
"""

LIGHT = CALLS.replace(") {", f") {machine_code.LIGHT} {{")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def result(code: MachineCode) -> int:
    return code.call(None, None, None, 20, 22)


def test_the_second_one_is_not_compiled(folder):
    first, second = MachineCode(TEXT), MachineCode(TEXT)
    assert (first.compiled_here, second.compiled_here) == (True, False)
    assert result(first) == result(second) == 42


def test_llvm_loads_what_is_not_loaded_here(folder, monkeypatch):
    MachineCode(TEXT)
    monkeypatch.setattr(elf, "loaded", lambda code: None)
    again = MachineCode(TEXT)
    assert not again.compiled_here
    assert result(again) == 42


def test_another_text_is_another_entry(folder):
    MachineCode(TEXT)
    assert MachineCode(TEXT.replace("add", "mul")).compiled_here
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (machine_code.llvmlite, "__version__", "0.0.0"),
        (machine_code, "detected", lambda: replace(detected(), version="1.0.0")),
        (machine_code, "_TUNING", {"loop_unrolling": True}),
        (machine_code, "_passes", lambda text: machine_code._Passes(1)),  # another rule
    ],
    ids=["llvmlite", "LLVM", "passes", "rule"],
)
def test_code_made_in_another_way_is_another_entry(folder, monkeypatch, where, name, value):
    MachineCode(TEXT)
    monkeypatch.setattr(where, name, value)
    assert MachineCode(TEXT).compiled_here


@pytest.mark.parametrize(
    ("name", "value", "which"),
    [
        ("_LEVEL", 1, {"one function"}),
        ("_LONG", 3, {"one function"}),
        ("_SHORTER_LEVEL", 0, {"calls", "light calls", "light"}),
        ("_BETWEEN", ("ipsccp",), {"calls"}),
        ("_AROUND", ("sroa",), {"calls", "light calls"}),
        ("_LIGHT", ("sroa",), {"light"}),
    ],
)
def test_code_is_found_unless_other_passes_made_it(folder, monkeypatch, name, value, which):
    light = TEXT.replace(") {", f") {machine_code.LIGHT} {{")
    calls = CALLS + "; a line\n" * machine_code._LONG
    texts = {"one function": TEXT, "calls": calls, "light calls": LIGHT, "light": light}
    made = {key: MachineCode(text) for key, text in texts.items()}
    monkeypatch.setattr(machine_code, name, value)
    again = {key: MachineCode(text) for key, text in texts.items()}
    assert {key for key, code in again.items() if code.compiled_here} == which
    assert [result(code) for code in (*made.values(), *again.values())] == [42] * 8


@pytest.mark.parametrize("lines", [0, machine_code._LONG])
@pytest.mark.parametrize("attribute", ["", " noinline", f" noinline {machine_code.STRAIGHT}"])
def test_the_passes_on_a_text(lines, attribute):
    text = CALLS.replace(") {", f"){attribute} {{", 1) + "; a line\n" * lines
    found = machine_code._passes(text)
    if not lines:
        assert found == machine_code._Passes(machine_code._LEVEL)  # a short product, whose loops also pack
    else:
        names = ("kernel",) if attribute else ("total", "kernel")
        straight = (machine_code._STRAIGHT, ("total",)) if machine_code.STRAIGHT in attribute else ((), ())
        assert found == (
            machine_code._SHORTER_LEVEL,
            (),
            machine_code._BETWEEN,
            (machine_code._AROUND, names),
            straight,
            bool(attribute),
        )


@pytest.mark.parametrize(("text", "passes"), [(CALLS, machine_code._AROUND), (TEXT, machine_code._LIGHT)])
def test_all_functions_of_light_code_are_light(text, passes):
    light = machine_code._Passes(machine_code._SHORTER_LEVEL, passes)
    every = text.replace(") {", f") {machine_code.LIGHT} {{")
    assert machine_code._passes(every) == machine_code._passes(every + "; a line\n" * machine_code._LONG) == light
    one = text.replace(") {", f") {machine_code.LIGHT} {{", 1)
    assert (machine_code._passes(one) == light) == (text == TEXT)


def product(factor: int) -> str:
    """A long module: a kernel, two micro-kernels, whose last argument is always the same, and exact values."""
    kernels = "".join(
        f"""
@offset{n} = internal constant i64 {n}

define internal i64 @multiply{n}(i64 %x, i64 %factor) noinline nounwind {{
  %product = mul i64 %x, %factor
  %offset = load i64, ptr @offset{n}
  %sum = add i64 %product, %offset
  ret i64 %sum
}}
"""
        for n in (1, 2)
    )
    body = f"""
define internal i64 @exact(i64 %x) cold noinline {{
  %y = add i64 %x, 100
  ret i64 %y
}}

define i32 @kernel(ptr %arrays, ptr %sizes, ptr %arena, i64 %first, i64 %last) {{
  %x = call i64 @multiply1(i64 %first, i64 {factor})
  %y = call i64 @multiply2(i64 %last, i64 {factor})
  %sum = add i64 %x, %y
  %exact = call i64 @exact(i64 %sum)
  %result = trunc i64 %exact to i32
  ret i32 %result
}}
"""
    return kernels + body + "\n" * machine_code._LONG


def test_a_long_product_is_compiled_in_two_parts(folder, monkeypatch):
    code = MachineCode(product(3))
    assert result(code) == (20 + 22) * 3 + 103
    (entry,) = folder.iterdir()
    assert len(elf.parts(entry.read_bytes()[32:])) == 2
    assert not MachineCode(product(3)).compiled_here
    monkeypatch.setattr(elf, "loaded", lambda code: None)
    assert result(MachineCode(product(3))) == (20 + 22) * 3 + 103  # loaded by LLVM


def test_without_another_thread_both_parts_are_compiled_one_after_the_other(folder, monkeypatch):
    def refuse(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(unlocked, "start_thread", refuse)
    assert result(MachineCode(product(5))) == (20 + 22) * 5 + 103


def test_a_destructor_in_the_other_thread_may_compile(folder, monkeypatch):
    """It would wait without end for the lock of the thread that waits for it."""
    inner, original = [], machine_code._run

    def run(*arguments: object) -> None:
        if unlocked.HELPING.now and not inner:
            inner.append(None)
            inner[0] = MachineCode(product(11))
        original(*arguments)

    monkeypatch.setattr(machine_code, "_run", run)
    outer = in_time(lambda: MachineCode(product(7)))
    assert [result(code) for code in (outer, *inner)] == [(20 + 22) * factor + 103 for factor in (7, 11)]


def in_time(call: Callable[[], MachineCode]) -> MachineCode:
    made: list[MachineCode] = []
    thread = threading.Thread(target=lambda: made.append(call()), daemon=True)
    thread.start()
    thread.join(60)
    assert made, "it waits for ever"
    return made[0]


def test_an_error_in_the_other_thread_is_raised():
    with pytest.raises(ZeroDivisionError):
        unlocked.at_once(lambda: 1, lambda: 1 // 0)


def test_code_that_is_needed_soon_is_made_by_another_thread_meanwhile(folder, monkeypatch):
    threads = []
    monkeypatch.setattr(machine_code, "SOON", [lambda: threads.append(threading.get_ident())])
    for text in (TEXT, TEXT.replace("add", "sub")):
        MachineCode(text)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_other_code_is_made_meanwhile_unless_the_code_is_on_disk(folder):
    others: list[MachineCode] = []

    def compile_other() -> None:
        others.append(MachineCode(product(13)))

    made = [in_time(lambda: MachineCode(product(9), meanwhile=[compile_other])) for _ in range(2)]
    assert [result(code) for code in (*made, *others)] == [(20 + 22) * factor + 103 for factor in (9, 9, 13)]


def test_a_text_that_is_not_llvms_is_an_error():
    with pytest.raises(RuntimeError, match="expected"):
        unlocked.parsed("define nothing")


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 4000], ids=["empty", "cut", "overwritten"])
def test_a_damaged_entry_is_compiled_again(folder, damage):
    MachineCode(TEXT)
    (entry,) = folder.iterdir()
    entry.write_bytes(damage)
    again = MachineCode(TEXT)
    assert again.compiled_here
    assert result(again) == 42
    assert not MachineCode(TEXT).compiled_here


def test_an_entry_that_cannot_be_read_or_written_is_compiled_each_time(folder):
    MachineCode(TEXT)
    (entry,) = folder.iterdir()
    entry.unlink()
    entry.mkdir()
    code = MachineCode(TEXT)
    assert code.compiled_here
    assert result(code) == 42


def test_threads_at_once_share_the_folder(folder):
    texts = [TEXT.replace("%sum = add", f"%none = add i64 {number}, 0\n  %sum = add") for number in range(4)]
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(MachineCode, texts * 4))
    assert [result(code) for code in made] == [42] * 16
    assert sum(code.compiled_here for code in made) == len(list(folder.iterdir())) == 4


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path / "file" / "kept"))
    assert result(MachineCode(TEXT)) == 42
    assert MachineCode(TEXT).compiled_here


def test_zero_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    MachineCode(TEXT)
    assert MachineCode(TEXT).compiled_here


GROWTH = """
import gc
from palladio.cpu.runtime.machine_code import MachineCode

def kilobytes():
    gc.collect()
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * 4

def compile(first, count):
    for number in range(first, first + count):
        text = TEXT.replace("%sum = add", f"%more = add i64 %first, {number}\\n  %sum = add")
        code = MachineCode(text)
        assert code.call(None, None, None, 20, 22) == 42

compile(0, 30)
before = kilobytes()
compile(30, 120)
print((kilobytes() - before) / 120)
"""


def test_what_llvm_makes_on_the_way_is_given_back(monkeypatch):
    """A pass manager that llvmlite does not free would be some 50 KiB for each kernel."""
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    command = [sys.executable, "-c", f"TEXT = {TEXT!r}\n{GROWTH}"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert float(found.stdout) < 25, found.stdout


PROGRAM = """
import numpy as np
from palladio.library import matmul
x = np.arange(64, dtype=np.float32).reshape(8, 8)
np.testing.assert_array_equal(matmul(x, x, interpret="cpu"), x @ x)
"""


def test_many_processes_at_once_share_the_folder(folder):
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=subprocess.PIPE) for _ in range(4)]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    entries = list(folder.iterdir())
    # Two kernels, the chain of both, the code that runs chains, and what LLVM said of the processor.
    assert len(entries) == 4 + elf.SUPPORTED


def test_a_kernel_call_uses_what_is_kept(folder):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 3.0

    x = np.arange(8, dtype=np.float32)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((8,), np.float32), interpret="cpu")
    native._code()  # the code that runs calls, which a process loads with its first kernel
    before = len(list(folder.glob("*")))  # in another process it may be the first one
    np.testing.assert_array_equal(call(x), x * 3)
    assert len(list(folder.iterdir())) == before + 1
