"""`jax.random` as Palladio answers it draws JAX's own numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from palladio import compat

jax = pytest.importorskip("jax")

with compat.jax():
    import jax as ours

DRAWS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "bits": lambda random, key, jnp: random.bits(key, (3, 5)),
    "bits of a byte": lambda random, key, jnp: random.bits(key, (7,), jnp.uint8),
    "split": lambda random, key, jnp: random.bits(random.split(key, 3)[2], (2,)),
    "split in two axes": lambda random, key, jnp: random.bits(random.split(key, (2, 2))[1, 0], (2,)),
    "fold_in": lambda random, key, jnp: random.bits(random.fold_in(key, 17), (2,)),
    "uniform": lambda random, key, jnp: random.uniform(key, (4, 3), minval=-2, maxval=3),
    "uniform bfloat16": lambda random, key, jnp: random.uniform(key, (9,), jnp.bfloat16),
    "normal": lambda random, key, jnp: random.normal(key, (64,)),
    "truncated_normal": lambda random, key, jnp: random.truncated_normal(key, -1.0, 2.0, (9,)),
    "exponential": lambda random, key, jnp: random.exponential(key, (9,)),
    "bernoulli": lambda random, key, jnp: random.bernoulli(key, 0.3, (33,)),
    "randint": lambda random, key, jnp: random.randint(key, (9,), -5, 1000),
    "randint of a byte": lambda random, key, jnp: random.randint(key, (9,), 0, 256, jnp.uint8),
    "randint of one value": lambda random, key, jnp: random.randint(key, (3,), 4, 4),
    "permutation": lambda random, key, jnp: random.permutation(key, 20),
    "permutation of rows": lambda random, key, jnp: random.permutation(key, jnp.arange(12).reshape(4, 3)),
    "choice": lambda random, key, jnp: random.choice(key, 10, (5,)),
    "choice without replacement": lambda random, key, jnp: random.choice(key, jnp.arange(9) * 2, (4,), replace=False),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_numbers_are_jaxs(name: str) -> None:
    drawn = [DRAWS[name](module.random, module.random.key(1234567), module.numpy) for module in (ours, jax)]
    found, expected = (np.asarray(each) for each in drawn)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
    else:  # the inverse of the error function is another approximation
        np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=3e-6, atol=1e-7)


def test_a_staged_function_draws_the_same() -> None:
    draw = ours.jit(lambda key: ours.random.normal(ours.random.split(key)[1], (8,)))
    key = ours.random.PRNGKey(3)
    np.testing.assert_allclose(draw(key), ours.random.normal(ours.random.split(key)[1], (8,)), rtol=1e-6)


def test_what_is_not_a_key_is_an_error() -> None:
    with pytest.raises(TypeError) as caught:
        ours.random.normal(7, (2,))
    assert str(caught.value).splitlines()[:2] == [
        "key: a random key is what jax.random.key(seed) returns",
        "  got:      7",
    ]


def test_other_generators_draw_the_same_numbers() -> None:
    for name in ("rbg", "unsafe_rbg", "pallas_tpu", "pallas_threefry2x32", "pallas_philox4x32"):
        np.testing.assert_array_equal(ours.random.key(3, impl=name), ours.random.key(3))


def test_known_generators_and_equal_chances() -> None:
    with pytest.raises(TypeError) as caught:
        ours.random.key(0, impl="mersenne")
    assert str(caught.value).splitlines()[:3] == [
        "there is no such generator",
        "  expected: threefry2x32 or pallas_threefry2x32 or pallas_philox4x32 or rbg or unsafe_rbg or pallas_tpu",
        "  got:      'mersenne'",
    ]
    with pytest.raises(TypeError) as caught:
        ours.random.choice(ours.random.key(0), 2, p=[0.1, 0.9])
    assert str(caught.value).splitlines()[:2] == [
        "p: choice draws with equal probabilities here",
        "  got:      [0.1, 0.9]",
    ]
