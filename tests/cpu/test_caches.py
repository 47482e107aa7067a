"""The caches of the host, as tiles are chosen for them."""

from __future__ import annotations

from pathlib import Path

import palladio as pl
from palladio.cpu.runtime.caches import ASSUMED, cache_bytes


def level(folder: Path, number: int, kind: str, depth: str, size: str) -> None:
    index = folder / f"index{number}"
    index.mkdir()
    for name, text in (("type", kind), ("level", depth), ("size", size)):
        (index / name).write_text(text + "\n", encoding="ascii")


def test_the_data_caches_of_each_level_are_read(tmp_path: Path) -> None:
    level(tmp_path, 0, "Data", "1", "48K")
    level(tmp_path, 1, "Instruction", "1", "32K")
    level(tmp_path, 2, "Unified", "2", "2048K")
    level(tmp_path, 3, "Unified", "3", "36M")
    assert cache_bytes(tmp_path) == (48 << 10, 2 << 20, 36 << 20)


def test_what_the_system_does_not_tell_is_assumed(tmp_path: Path) -> None:
    assert cache_bytes(tmp_path / "nowhere") == ASSUMED
    level(tmp_path, 0, "Data", "1", "no size")
    level(tmp_path, 2, "Unified", "2", "16M")
    assert cache_bytes(tmp_path) == (ASSUMED[0], 16 << 20, 16 << 20)


def test_the_processor_tells_what_kernels_run_with(monkeypatch) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "3")
    monkeypatch.setenv("PALLADIO_CPU", "portable")
    host = pl.processor()
    assert (host.threads, host.vector_bytes) == (3, 16)
    assert host.cache_bytes == cache_bytes()
