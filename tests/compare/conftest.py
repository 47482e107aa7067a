"""How JAX runs the kernels that these tests compare with."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def compiled_quickly() -> Iterator[None]:
    """Each program runs once: XLA leaves out the passes that only make it faster."""
    name = "jax_disable_most_optimizations"
    jax.config.update(name, True)
    yield
    jax.config.update(name, False)
