"""Compiled kernels on disk: what is kept serves again, what is damaged is compiled again."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import palladio as pl
from palladio.cpu.machine_code import KERNEL, MachineCode

TEXT = """
define i32 @kernel(ptr %arrays, ptr %sizes, ptr %arena, i64 %first, i64 %last) {
entry:
  %sum = add i64 %first, %last
  %result = trunc i64 %sum to i32
  ret i32 %result
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def result(code: MachineCode) -> int:
    return code.call(None, None, None, 20, 22)


def test_the_second_one_is_not_compiled(folder):
    first, second = MachineCode(TEXT, KERNEL), MachineCode(TEXT, KERNEL)
    assert (first.compiled_here, second.compiled_here) == (True, False)
    assert result(first) == result(second) == 42


def test_another_text_is_another_entry(folder):
    MachineCode(TEXT, KERNEL)
    assert MachineCode(TEXT.replace("add", "mul"), KERNEL).compiled_here
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 4000], ids=["empty", "cut", "overwritten"])
def test_a_damaged_entry_is_compiled_again(folder, damage):
    MachineCode(TEXT, KERNEL)
    (entry,) = folder.iterdir()
    entry.write_bytes(damage)
    again = MachineCode(TEXT, KERNEL)
    assert again.compiled_here
    assert result(again) == 42
    assert not MachineCode(TEXT, KERNEL).compiled_here


def test_one_changed_bit_is_noticed(folder):
    MachineCode(TEXT, KERNEL)
    (entry,) = folder.iterdir()
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(bytes(data))
    assert MachineCode(TEXT, KERNEL).compiled_here


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path / "file" / "kept"))
    assert result(MachineCode(TEXT, KERNEL)) == 42
    assert MachineCode(TEXT, KERNEL).compiled_here


def test_zero_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    MachineCode(TEXT, KERNEL)
    assert MachineCode(TEXT, KERNEL).compiled_here


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
    assert len(entries) == 1 and entries[0].suffix == ".o"


def test_a_kernel_call_uses_what_is_kept(folder):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 3.0

    x = np.arange(8, dtype=np.float32)
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((8,), np.float32), interpret="cpu")
    np.testing.assert_array_equal(call(x), x * 3)
    assert len(list(folder.iterdir())) == 1
