"""The random number generator of Pallas' TPU namespace.

A TPU draws from registers of its hardware, and its numbers are not specified. Here they are those of
`palladio.base.threefry`: a kernel has a key and the number of its draws, in scalar memory of its own. A key of
`jax.random`, uint32[2], is one of Pallas too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palladio.array import convert
from palladio.array.convert import Array, ArrayLike
from palladio.array.functions import bits, creation, draws
from palladio.array.functions import shape as shapes
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.base.threefry import rounds
from palladio.trace.array_refs import empty_ref
from palladio.trace.grid import program_id
from palladio.trace.reference import Reference
from palladio.trace.trace import current_trace, require_trace
from palladio.types import dtypes
from palladio.types.types import SCALAR, ShapeDtypeStruct

_WORD = np.dtype(np.uint32)


def _state() -> Reference | None:
    """The state of the function being traced or of one around it, uint32[3]: a key, and the number of draws."""
    trace = current_trace()
    while trace is not None and trace.generator is None:
        trace = trace.parent
    return None if trace is None else trace.generator


def _word(value: ArrayLike, argument: str) -> Array:
    """A scalar integer as an uint32; of a Python integer the last 32 bits."""
    if isinstance(value, int):
        return convert.cast(np.uint32(value & 0xFFFFFFFF), _WORD)
    kind = convert.array_type(value)
    if kind.shape or not dtypes.is_integer(kind.dtype):
        raise PalladioTypeError(
            "a seed is a scalar integer, or the only one is a key", argument=argument, expected="i32[]", got=str(kind)
        )
    return bits.view(convert.cast(value, dtypes.INT32), _WORD) if kind.dtype != _WORD else convert.cast(value, _WORD)


def _is_key(value: Any) -> bool:
    kind = convert.array_type(value)
    return kind.shape == (2,) and kind.dtype == _WORD


def prng_seed(*seeds: ArrayLike) -> None:
    """Seed the generator of a kernel. The same seeds give the same numbers on every executor.

    Args:
        seeds: scalar integers, or one key, uint32[2].

    Raises:
        PalladioTypeError: what is neither.
        PalladioValueError: outside of a kernel; no seed.
    """
    require_trace("pltpu.prng_seed")
    if not seeds:
        raise PalladioValueError("a generator needs a seed", argument="seeds")
    if len(seeds) == 1 and _is_key(seeds[0]):
        key: Any = seeds[0]
    else:
        key = (np.uint32(0), np.uint32(0))
        for seed in seeds:
            with np.errstate(over="ignore"):
                key = rounds(key, np.uint32(0), _word(seed, "seeds"))
    state = _state()
    if state is None:
        trace: Any = current_trace()
        state = trace.generator = empty_ref(ShapeDtypeStruct((3,), _WORD), SCALAR)
    state[0], state[1], state[2] = key[0], key[1], np.uint32(0)


def _words(shape: Sequence[int]) -> Array:
    """The next random words, uint32[shape]."""
    require_trace("pltpu.prng_random_bits")
    state = _state()
    if state is None:
        raise PalladioValueError(
            "the generator of this kernel has no seed",
            hint="call pltpu.prng_seed(seed, pl.program_id(0)) first, in the same function or one around it: a seed "
            "under pl.when, or that of an earlier point of the grid, does not last",
        )
    draws_so_far = state[2]
    state[2] = draws_so_far + np.uint32(1)
    places = creation.static_shape(shape)
    low = shapes.reshape(creation.arange(math.prod(places), dtype=_WORD), places)
    high = convert.broadcast_to(draws_so_far, places)
    first, second = rounds((state[0], state[1]), high, low)
    found: Array = first ^ second
    return found


def prng_random_bits(shape: Sequence[int]) -> Array:
    """The next random bits of the generator that `prng_seed` seeded, i32[shape].

    Raises:
        PalladioValueError: outside of a kernel; no seed in this function or one around it.
    """
    return bits.view(_words(shape), dtypes.INT32)


def stateful_bits(shape: Sequence[int] = (), dtype: Any = np.uint32) -> Array:
    """`jax.random.bits` of the generator that `prng_seed` seeded: an unsigned dtype of at most 32 bits.

    Raises:
        PalladioTypeError: another dtype.
        PalladioValueError: as of `prng_random_bits`.
    """
    kind = dtypes.canonical(dtype)
    if not dtypes.is_unsigned(kind) or kind.itemsize > 4:
        raise PalladioTypeError(
            "random bits are unsigned, of at most 32 bits", argument="dtype", got=dtypes.short_name(kind)
        )
    return convert.cast(_words(shape), kind)


def stateful_uniform(
    shape: Sequence[int] = (), dtype: Any = np.float32, minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0
) -> Array:
    """`jax.random.uniform` of the generator that `prng_seed` seeded.

    Raises:
        PalladioValueError: as of `prng_random_bits`.
    """
    return draws.uniform(lambda word: stateful_bits(shape, word), _float(dtype), minval, maxval)


def stateful_normal(shape: Sequence[int] = (), dtype: Any = np.float32) -> Array:
    """`jax.random.normal` of the generator that `prng_seed` seeded.

    Raises:
        PalladioValueError: as of `prng_random_bits`.
    """
    return draws.normal(lambda word: stateful_bits(shape, word), _float(dtype))


def stateful_bernoulli(p: ArrayLike = 0.5, shape: Sequence[int] | None = None) -> Array:
    """`jax.random.bernoulli` of the generator that `prng_seed` seeded: true with probability `p`.

    Raises:
        PalladioValueError: as of `prng_random_bits`.
    """
    chance = convert.cast(p, dtypes.FLOAT32)
    places = convert.array_type(chance).shape if shape is None else shape
    found: Array = stateful_uniform(places) < chance
    return found


def _float(dtype: Any) -> Any:
    kind = dtypes.FLOAT32 if dtype is float else dtypes.canonical(dtype)
    if kind == dtypes.FLOAT64:
        raise PalladioTypeError("random numbers of a kernel have at most 32 bits", argument="dtype", got="f64")
    return kind


def to_pallas_key(key: Array) -> Array:
    """A key for kernels, made of one of `jax.random`, or of several.

    Args:
        key: uint32[..., 2].

    Returns:
        Keys of the same shape.
    """
    kind = convert.array_type(key)
    if kind.shape[-1:] != (2,) or kind.dtype != _WORD:
        raise PalladioTypeError("a random key is an uint32[..., 2]", argument="key", got=str(kind))
    words = key[..., 0, None], key[..., 1, None]
    position = convert.broadcast_to(np.arange(2, dtype=_WORD), kind.shape)
    with np.errstate(over="ignore"):
        first, second = rounds(words, creation.zeros_like(position), position)
    found: Array = first ^ second
    return found


def _folded(key: Any, data: ArrayLike) -> Array:
    """`jax.random.fold_in(key, data)`."""
    with np.errstate(over="ignore"):
        return creation.stack(rounds((key[0], key[1]), np.uint32(0), _word(data, "block_index")))


def sample_block(
    sampler_fn: Callable[..., Array],
    global_key: Array,
    block_size: Sequence[int],
    tile_size: Sequence[int],
    total_size: Sequence[int],
    block_index: Sequence[ArrayLike] | None = None,
    **kwargs: Any,
) -> Array:
    """A block of random numbers of an array; they do not depend on how the array is divided into blocks.

    Each tile has a key of its own, made of the key and of the tile's position in the array.

    Args:
        sampler_fn: draws one tile: `sampler_fn(key, shape=tile_size, **kwargs)`.
        global_key: the key of the whole array, uint32[2].
        block_size, tile_size, total_size: the shapes of the block, of a tile, which divides it, and of the array.
        block_index: which block; the indices of the grid by default.

    Raises:
        PalladioValueError: shapes of different lengths, a tile that does not divide the block.
    """
    if not len(block_size) == len(tile_size) == len(total_size):
        raise PalladioValueError(
            "a block, a tile and the array have as many axes",
            argument="tile_size",
            got=f"{tuple(block_size)}, {tuple(tile_size)}, {tuple(total_size)}",
            jax="must have the same length",
        )
    if any(block % tile for block, tile in zip(block_size, tile_size, strict=True)):
        raise PalladioValueError(
            "tiles divide their block", argument="tile_size", expected=tuple(block_size), got=tuple(tile_size)
        )
    index = [program_id(axis) for axis in range(len(block_size))] if block_index is None else list(block_index)
    counts = [block // tile for block, tile in zip(block_size, tile_size, strict=True)]
    totals = [-(-total // tile) for total, tile in zip(total_size, tile_size, strict=True)]

    def tile(place: tuple[int, ...]) -> Array:
        number: Any = 0
        for position, at, count, total in zip(place, index, counts, totals, strict=True):
            number = number * total + (at * count + position)
        return sampler_fn(_folded(global_key, number), shape=tuple(tile_size), **kwargs)

    def along(place: tuple[int, ...]) -> Array:
        axis = len(place)
        if axis == len(counts):
            return tile(place)
        return creation.concatenate([along((*place, each)) for each in range(counts[axis])], axis=axis)

    return along(())
