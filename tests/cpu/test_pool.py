"""Memory that is used again: which unused blocks are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import palladio as pl
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


def test_unused_sizes_make_room() -> None:
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


def test_a_result_of_fewer_rows_takes_the_block_of_one_that_is_gone() -> None:
    pool = memory.Pool()
    first = np.asarray(memory.Lease(pool, 5 << 20))
    address = first.ctypes.data
    del first
    for size in (5 << 20, (5 << 20) - 4096, 4 << 20, 3 << 20):
        block = np.asarray(memory.Lease(pool, size))
        assert (block.ctypes.data, block.nbytes) == (address, size)
        del block
    assert np.asarray(memory.Lease(pool, 2 << 20)).ctypes.data != address  # more than twice as large
    assert pool.kept == (5 << 20) + (2 << 20)


def test_blocks_are_at_most_a_quarter_larger_than_what_they_hold() -> None:
    classes = {memory.size_class(size) for size in range(1 << 18, 1 << 20, 1000)}
    assert len(classes) <= 9 and all(size % 4096 == 0 for size in classes)
    assert all(size <= memory.size_class(size) <= 5 * size / 4 for size in range(1 << 18, 1 << 20, 999))
    assert memory.size_class(1) == 1


def test_a_kernel_of_fewer_rows_writes_to_the_memory_of_the_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "POOL", memory.Pool())

    def doubled(rows: int) -> np.ndarray[Any, Any]:
        block = pl.BlockSpec((8, 1024), lambda i: (i, 0))
        out = pl.ShapeDtypeStruct((rows, 1024), np.float32)
        call = pl.pallas_call(
            lambda x, out: out.__setitem__(..., x[...] * 2),
            out,
            grid=(rows // 8,),
            in_specs=[block],
            out_specs=block,
            interpret="cpu",
        )
        return call(np.ones((rows, 1024), np.float32))

    address = doubled(160).ctypes.data
    again = doubled(136)
    assert again.ctypes.data == address and again.shape == (136, 1024) and (again == 2).all()
