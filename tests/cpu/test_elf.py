"""Loading object files without LLVM: what is loaded does what it does when LLVM loads it; the rest is refused."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

import pytest

from palladio.cpu.runtime import executable, host
from palladio.cpu.runtime.elf import joined, loaded, parts
from palladio.cpu.runtime.executable import Executable
from palladio.cpu.runtime.machine_code import _optimised, _target_machine

if not executable.SUPPORTED:
    pytest.skip("objects of this system are left to LLVM", allow_module_level=True)

ADDS = """
define i64 @kernel(i64 %x) {
  %y = add i64 %x, 1
  ret i64 %y
}
"""

CALLS = """
@squares = internal constant [4 x i64] [i64 0, i64 1, i64 4, i64 9]

declare i64 @imaxabs(i64)

define internal i64 @square(i64 %x) noinline {
  %place = getelementptr i64, ptr @squares, i64 %x
  %y = load volatile i64, ptr %place
  ret i64 %y
}

define i64 @kernel(i64 %x) {
  %y = call i64 @imaxabs(i64 %x)
  %z = call i64 @square(i64 %y)
  ret i64 %z
}
"""

CASES = range(12)
SWITCH = "\n".join(
    [
        "declare i64 @imaxabs(i64)",
        "define i64 @kernel(i64 %x) {",
        f"switch i64 %x, label %other [ {' '.join(f'i64 {n}, label %case{n}' for n in CASES)} ]",
        *(f"case{n}:\n%y{n} = call i64 @imaxabs(i64 {-3 * n})\nfence seq_cst\nret i64 %y{n}" for n in CASES),
        "other:\nret i64 -1\n}",
    ]
)

VARIABLE = """
@count = internal global i64 0

define i64 @kernel(i64 %x) {
  %before = load i64, ptr @count
  %after = add i64 %before, %x
  store i64 %after, ptr @count
  ret i64 %after
}
"""


def compiled(text: str) -> bytes:
    machine = _target_machine(host.current())
    return bytes(machine.emit_object(_optimised(text, machine)))


def function(code: bytes) -> Callable[[int], int]:
    found = loaded(code)
    assert found is not None
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(found.address("kernel"))
    call.code = found  # type: ignore[attr-defined]
    return call


def test_code_is_loaded_and_runs() -> None:
    assert function(compiled(ADDS))(41) == 42


def test_constants_other_functions_and_those_of_the_c_library_are_found() -> None:
    call = function(compiled(CALLS))
    assert [call(x) for x in (-3, -2, 0, 1)] == [9, 4, 0, 1]


def test_objects_find_each_others_functions() -> None:
    caller = "declare i64 @twice(i64)\ndefine i64 @kernel(i64 %x) {\n%y = call i64 @twice(i64 %x)\nret i64 %y\n}"
    called = "define i64 @twice(i64 %x) {\n%y = add i64 %x, %x\nret i64 %y\n}"
    objects = [compiled(text) for text in (caller, called)]
    for order in (objects, objects[::-1]):
        assert parts(joined(order)) == order
        assert function(joined(order))(21) == 42
    assert loaded(objects[0]) is None
    assert parts(joined(objects[:1])) == objects[:1]


def test_tables_of_jumps() -> None:
    call = function(compiled(SWITCH))
    assert [call(x) for x in (0, 5, 11, 12)] == [0, 15, 33, -1]


def test_memory_is_unmapped_with_its_object() -> None:
    found = loaded(compiled(ADDS))
    assert found is not None
    memory = weakref.ref(found._memory.bytes)
    assert memory() is not None
    del found
    assert memory() is None


def changed(code: bytes, place: int, value: int) -> bytes:
    """Object code with another 16-bit field."""
    return code[:place] + value.to_bytes(2, "little") + code[place + 2 :]


def relocation(code: bytes) -> int:
    """The place of the kind of the first relocation of the code."""
    sections = int.from_bytes(code[40:48], "little")
    for header in (code[start : start + 64] for start in range(sections, len(code), 64)):
        if header[4] == 4:  # SHT_RELA
            return int.from_bytes(header[24:32], "little") + 8
    raise AssertionError("no relocation")


MACHINE, ARM = 18, 183
PC32 = 2


def test_what_only_llvm_can_load_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compiled(CALLS)
    assert loaded(code) is not None
    assert loaded(changed(code, MACHINE, ARM)) is None
    assert loaded(changed(code, relocation(code), PC32)) is None
    assert loaded(code.replace(b"imaxabs", b"nowhere")) is None
    assert loaded(compiled(VARIABLE)) is None
    monkeypatch.setattr("palladio.cpu.runtime.elf.SUPPORTED", False)
    assert loaded(code) is None


def test_a_system_that_refuses_executable_memory_leaves_code_to_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(memory: Executable) -> None:
        raise PermissionError

    monkeypatch.setattr(Executable, "seal", refuse)
    assert loaded(compiled(ADDS)) is None
