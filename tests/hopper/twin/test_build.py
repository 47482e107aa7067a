"""The twin's header has the same functions as the device's; what cannot be compiled is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palladio.base.errors import InternalError, PalladioNotImplementedError
from palladio.hopper.primitives import MACROS, MATHEMATICS, PRIMITIVES
from palladio.hopper.twin import build
from tests.hopper.twin.kernels import array, changed, kernel, output

HEADER = (build.SOURCES / "device.hpp").read_text()


def declared() -> list[str]:
    inside = HEADER.partition("namespace pal {")[2].partition("}  // namespace pal")[0]
    joined = re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", inside))
    joined = re.sub(r"(, )?TWIN_SITE|TWIN_INLINE |inline ", "", joined)
    while "{" in joined:
        joined = re.sub(r"\{[^{}]*\}", ";", joined)
    found = [each.strip() for each in joined.split(";")]
    return [each for each in found if each and not each.startswith("using ")]


def test_the_header_declares_the_table_of_primitives() -> None:
    assert sorted(declared()) == sorted(each.signature for each in PRIMITIVES)


def test_the_header_has_the_macros_and_the_mathematics() -> None:
    assert set(MACROS) <= set(re.findall(r"#define (\w+)", HEADER))
    known = set(re.findall(r"TWIN_(?:UNARY|BINARY)\((\w+)\)", HEADER)) | {"fma"}
    assert set(MATHEMATICS) <= known


def test_each_primitive_is_called_by_a_test() -> None:
    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    assert {each.name for each in PRIMITIVES if not re.search(rf"\b{each.name}\b", texts)} == set()


def test_the_header_includes_none_of_the_compilers_library() -> None:
    """Declarations take a tenth of a second to compile; the library's headers take two, for each kernel."""
    texts = [HEADER, (build.SOURCES / "types.hpp").read_text()]
    assert [re.findall(r"#include (\S+)", text) for text in texts] == [['"types.hpp"'], []]


IDENTITY = kernel(
    "pal::store_global(y + pal::thread_index(), pal::load_global(x + pal::thread_index()));",
    [array("x", "f4", 32), output("y", "f4", 32)],
    threads=32,
)


def test_a_text_that_does_not_compile_shows_the_message_of_the_compiler() -> None:
    with pytest.raises(InternalError) as caught:
        build.kernel(changed(IDENTITY, "pal::load_global", "pal::no_such_thing"))
    first, *rest = str(caught.value).splitlines()
    assert first == "g++ does not compile the text of k:"
    assert any(line.startswith("kernel.cu:1:") and "'no_such_thing' is not a member of 'pal'" in line for line in rest)


def test_the_runtime_is_compiled_once_and_each_text_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled: list[str] = []
    compile_, runtime = build._compile, build.runtime()
    assert build.runtime() is runtime
    monkeypatch.setattr(build, "runtime", lambda: runtime)  # two in one process would share their state
    monkeypatch.setattr(build, "_folder", lambda: tmp_path)
    monkeypatch.setattr(build, "_loaded", {})
    monkeypatch.setattr(build, "_compile", lambda *given: compiled.append(given[1]) or compile_(*given))
    other = changed(IDENTITY, "PAL_BOUNDS(32)", "PAL_BOUNDS(32)  ")
    for each in (IDENTITY, other, IDENTITY, other):
        build.kernel(each)
    assert compiled == ["the text of k"] * 2
    monkeypatch.setattr(build, "_loaded", {})  # as in another process, which finds the files
    build.kernel(IDENTITY)
    assert len(compiled) == 2


def test_a_missing_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(PalladioNotImplementedError) as caught:
        build.kernel(changed(IDENTITY, "PAL_BOUNDS(32)", "PAL_BOUNDS(32) "))
    assert str(caught.value).splitlines()[0] == ("the host twin compiles kernels with g++, which is not installed")
    assert "install g++ to test kernels for Hopper without a GPU" in str(caught.value)
