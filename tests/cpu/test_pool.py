"""Memory that is used again: which blocks are kept while nobody uses them."""

from __future__ import annotations

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
    pool = memory.Pool(kept_bytes=1000)
    for size in (400, 500, 300):
        pool.give(memory.aligned(size))
    pool.trim()
    assert pool.kept == 800
    assert {size: len(blocks) for size, blocks in pool.free.items() if blocks} == {500: 1, 300: 1}


def test_a_block_larger_than_all_that_is_kept_is_let_go() -> None:
    pool = memory.Pool(kept_bytes=1000)
    pool.give(memory.aligned(900))
    pool.give(memory.aligned(1001))
    assert pool.kept == 900
