"""Memory that is used again: which blocks are kept while nobody uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from palladio.cpu.runtime import memory


def place(pool: memory.Pool, size: int) -> int:
    """Where the block is that a pool has next; it is given back."""
    block = pool.take(size)
    pool.give(block)
    return int(block.ctypes.data)


def test_a_block_that_was_given_is_taken_again() -> None:
    pool = memory.Pool()
    first = place(pool, 1 << 20)
    assert place(pool, 1 << 20) == first
    assert pool.kept == 1 << 20


def test_sizes_that_nobody_uses_any_more_make_room() -> None:
    pool = memory.Pool(lambda: 1000)
    for size in (400, 500, 300):
        pool.give(memory.aligned(size))
    pool.trim()
    assert pool.kept == 800
    assert {size: len(blocks) for size, blocks in pool.free.items() if blocks} == {500: 1, 300: 1}


def test_a_block_larger_than_all_that_is_kept_is_let_go() -> None:
    pool = memory.Pool(lambda: 1000)
    pool.give(memory.aligned(900))
    pool.give(memory.aligned(1001))
    assert pool.kept == 900


def test_a_container_keeps_a_share_of_its_own_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("max\n")
    (tmp_path / "old").write_text(f"{1 << 33}\n")
    monkeypatch.setattr(memory, "LIMITS", (str(tmp_path / "new"), str(tmp_path / "old"), str(tmp_path / "absent")))
    monkeypatch.setattr(memory.os, "sysconf", {"SC_PHYS_PAGES": 1 << 28, "SC_PAGE_SIZE": 1 << 12}.__getitem__)
    monkeypatch.delenv("PALLADIO_KEPT_MEMORY", raising=False)
    assert memory.memory_bytes.__wrapped__() == 1 << 33
    monkeypatch.setattr(memory, "memory_bytes", memory.memory_bytes.__wrapped__)
    assert memory.kept_bytes() == 1 << 29


def test_a_machine_that_does_not_tell_its_memory_keeps_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALLADIO_KEPT_MEMORY", raising=False)
    monkeypatch.setattr(memory, "LIMITS", ())
    monkeypatch.delattr(memory.os, "sysconf")
    monkeypatch.setattr(memory, "memory_bytes", memory.memory_bytes.__wrapped__)
    assert memory.kept_bytes() == memory.LEAST_KEPT_BYTES


@pytest.mark.parametrize(("mebibytes", "kept"), [("0", 0), ("3", 3 << 20)])
def test_the_environment_says_how_much_is_kept(monkeypatch: pytest.MonkeyPatch, mebibytes: str, kept: int) -> None:
    monkeypatch.setenv("PALLADIO_KEPT_MEMORY", mebibytes)
    pool = memory.Pool()
    for _ in range(5):
        pool.give(memory.aligned(1 << 20))
    pool.trim()
    assert pool.kept == kept
