"""The pictures of layouts in `docs/hopper.md` are those that `palladio show` draws."""

from __future__ import annotations

from palladio.hopper.layouts import pictures, registers, shared
from tests.architecture.source import ROOT

PAGE = (ROOT / "docs/hopper.md").read_text(encoding="utf-8")


def test_the_page_shows_an_accumulator_in_registers() -> None:
    assert f"```text\n{pictures.of_registers(registers.wgmma(64, 16))}\n```" in PAGE


def test_the_page_shows_a_swizzled_buffer_in_shared_memory() -> None:
    assert f"```text\n{pictures.of_shared(shared.SharedLayout((64, 128), 2, 128))}\n```" in PAGE
