"""How often a kernel's text is compiled: once for all calls and processes that share a folder.

That kernels of the library are not even traced again is in `driver/test_stored.py`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from palladio.hopper import compile as nvrtc
from palladio.hopper.lowered import Lowered
from palladio.library import hopper
from tests.hopper.kernels import BF16, lowered, normal

X, Y = normal(128, 64), normal(64, 128)


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Texts that NVRTC compiles, by the name of the kernel; the folder of cubins is empty."""
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path))
    found: Counter[str] = Counter()
    compile_text = nvrtc._compiled

    def counted(each: Lowered) -> nvrtc.Cubin:
        found[each.name] += 1
        return compile_text(each)

    monkeypatch.setattr(nvrtc, "_compiled", counted)
    return found


def product(n: int = 128) -> Lowered:
    return lowered(lambda x, y: hopper.matmul(x, y, preferred_element_type=BF16), X, Y[:, :n])


def test_a_text_is_compiled_once(counts: Counter[str]) -> None:
    first = nvrtc.compiled(product())
    for _ in range(3):
        again = nvrtc.compiled(product())  # lowered again: the text is the same, and names the cubin
        assert again.code == first.code
    assert sum(counts.values()) == 1
    nvrtc.compiled(product(64))
    assert sum(counts.values()) == 2


@pytest.mark.parametrize("change", ["text", "header", "options", "compiler"])
def test_everything_that_determines_a_cubin_is_in_its_key(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    made = product()
    before = nvrtc.key(made)
    if change == "text":
        made = Lowered(**{**vars(made), "text": made.text + " "})
    elif change == "header":
        monkeypatch.setattr(nvrtc, "device_header", lambda: "// another")
    elif change == "options":
        monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "-G"))
    else:
        monkeypatch.setattr(nvrtc, "version", lambda: (99, 0))
    assert nvrtc.key(made) != before
