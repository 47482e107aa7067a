"""`jax.random`: the numbers that JAX's default generator draws, so that a file sees the inputs it was written with.

The generator is that of `palladio.base.threefry`. A key is a uint32[2], and may be traced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import palladio.numpy as jnp
from palladio import lax
from palladio.array.functions import draws
from palladio.base.errors import PalladioTypeError
from palladio.base.threefry import key_of, rounds, sorts, words
from palladio.trace.trace import is_traced

_BITS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
GENERATORS = ("threefry2x32", "pallas_threefry2x32", "pallas_philox4x32", "rbg", "unsafe_rbg", "pallas_tpu")


def _words(key: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Two random words for each position of a shape; of a traced key, by equations, since kernels capture no arrays."""
    if not is_traced(_key(key)):
        return words(key, shape)
    low = jnp.reshape(jnp.arange(math.prod(shape), dtype=np.uint32), shape)
    return rounds(key, jnp.zeros_like(low), low)


def _key(key: Any) -> Any:
    if getattr(key, "shape", None) != (2,) or key.dtype != np.uint32:
        raise PalladioTypeError("a random key is what jax.random.key(seed) returns", argument="key", got=repr(key))
    return key


def _float(dtype: Any) -> np.dtype[Any]:
    return np.dtype(np.float32 if dtype in (None, float) else dtype)


def _integer(dtype: Any) -> np.dtype[Any]:
    return np.dtype(np.int32 if dtype in (None, int) else dtype)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A key for an integer seed, as uint32[2].

    `impl` and `dtype` may name a generator of JAX: all draw the numbers of threefry2x32. Those of the others depend on
    the machine in JAX too, but for pallas_threefry2x32, which is the same one.
    """
    for name in (impl, dtype):
        if name is not None and name not in GENERATORS:
            raise PalladioTypeError("there is no such generator", expected=" or ".join(GENERATORS), got=repr(name))
    return key_of(int(seed))


PRNGKey = key


def key_data(keys: Any) -> Any:
    """The words of a key: the key itself, here."""
    return keys


def wrap_key_data(keys: Any, *, impl: Any = None) -> Any:
    """A key of its words."""
    return keys


def split(key: Any, num: int | Sequence[int] = 2) -> Any:
    """`num` new keys, uint32[num, 2]."""
    shape = (num,) if isinstance(num, int) else tuple(num)
    return jnp.stack(_words(key, shape), axis=len(shape))


def fold_in(key: Any, data: Any) -> Any:
    """A new key for a key and an integer."""
    with np.errstate(over="ignore"):
        return jnp.stack(rounds(_key(key), np.zeros((), np.uint32), jnp.asarray(data).astype(np.uint32)))


def bits(key: Any, shape: Sequence[int] = (), dtype: Any = np.uint32) -> Any:
    """Random bits in an unsigned integer dtype."""
    wanted = np.dtype(dtype)
    high, low = _words(key, shape)
    if wanted.itemsize == 8:
        return high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    return (high ^ low).astype(wanted)


class threefry2x32_p:
    """The generator as a primitive of JAX, which kernels of its library bind."""

    @staticmethod
    def bind(key_high: Any, key_low: Any, high: Any, low: Any) -> tuple[Any, Any]:
        """The words of a key and of counters, broadcast to each other -> two random words for each counter."""
        return rounds((key_high, key_low), high, low)


def uniform(key: Any, shape: Sequence[int] = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Uniform on [minval, maxval), made of as many random bits as the dtype has in its mantissa."""
    return draws.uniform(lambda word: bits(key, shape, word), _float(dtype), minval, maxval)


def normal(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Any:
    """The standard normal distribution, by the inverse of its distribution function."""
    return draws.normal(lambda word: bits(key, shape, word), _float(dtype))


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Any:
    """The normal distribution between two bounds."""
    kind = _float(dtype)
    low, high = jnp.asarray(lower, kind), jnp.asarray(upper, kind)
    shape = np.broadcast_shapes(low.shape, high.shape) if shape is None else shape
    root = np.array(np.sqrt(2), kind)
    found = root * lax.erf_inv(uniform(key, shape, kind, lax.erf(low / root), lax.erf(high / root)))
    infinity = np.array(np.inf, kind)
    return jnp.clip(found, jnp.nextafter(low, infinity), jnp.nextafter(high, -infinity))


def exponential(key: Any, shape: Sequence[int] = (), dtype: Any = None) -> Any:
    """The exponential distribution of rate 1."""
    return -jnp.log1p(-uniform(key, shape, dtype))


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """True with probability `p`."""
    chance = jnp.asarray(p, np.float32) if isinstance(p, (int, float)) else p
    return uniform(key, chance.shape if shape is None else shape, chance.dtype) < chance


def randint(key: Any, shape: Sequence[int], minval: Any, maxval: Any, dtype: Any = None) -> Any:
    """Integers in [minval, maxval), scalars; two words are drawn for each, so that the remainder is nearly unbiased."""
    kind = _integer(dtype)
    limits = np.iinfo(kind)
    low, high = int(minval), int(maxval)
    beyond = high > limits.max  # the whole range has one more value than the dtype's width can count
    low, high = (min(max(each, limits.min), limits.max) for each in (low, high))
    width = limits.bits
    span = (high - low + beyond) % 2**width if high > low else 1
    word = _BITS[width]
    keys = split(key)
    upper, lower = bits(keys[0], shape, word), bits(keys[1], shape, word)
    with np.errstate(over="ignore"):
        if span == 0:
            offset = upper * word(0) + lower  # every value of the dtype: nothing to take a remainder of
        else:
            shift = pow(2, width, span)
            offset = (upper % word(span) * word(shift) + lower % word(span)) % word(span)
        return np.array(low, kind) + lax.bitcast_convert_type(offset, kind)


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """An array shuffled along an axis, or the integers below `x`."""
    if isinstance(x, (int, np.integer)):
        return _shuffled(key, jnp.arange(int(x)), 0)
    if independent or x.ndim == 1:
        return _shuffled(key, jnp.asarray(x), axis)
    return jnp.take(x, _shuffled(key, jnp.arange(x.shape[axis]), 0), axis)


def _shuffled(key: Any, x: Any, axis: int) -> Any:
    """Sorted by random words, often enough that two elements are unlikely to draw equal words every time."""
    for _ in range(sorts(x.size)):
        keys = split(key)
        key = keys[0]
        _, x = lax.sort_key_val(bits(keys[1], x.shape), x, axis)
    return x


def choice(key: Any, a: Any, shape: Sequence[int] = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """A sample of an array's rows along `axis`, or of the integers below `a`. All have the same probability.

    Raises:
        PalladioTypeError: for probabilities `p`.
    """
    if p is not None:
        raise PalladioTypeError("choice draws with equal probabilities here", argument="p", got=repr(p))
    if not replace:
        drawn = permutation(key, a, axis)[(slice(None),) * axis + (slice(math.prod(shape)),)]
        return drawn.reshape(shape) if isinstance(a, (int, np.integer)) else drawn
    whole = isinstance(a, (int, np.integer))
    picked = randint(key, shape, 0, int(a) if whole else a.shape[axis])
    return picked if whole else jnp.take(a, picked, axis)
