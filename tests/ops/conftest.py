"""JAX computes the references of these tests without most of its optimisations: compiling is most of the work here."""

from __future__ import annotations

from collections.abc import Generator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def most_optimizations_disabled() -> Generator[None]:
    """References in JAX are compiled for one call each."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
