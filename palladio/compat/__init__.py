"""Run kernel files that import JAX unchanged: Palladio provides `jax`.

    with palladio.compat.jax():
        import my_pallas_kernels

JAX need not be installed. `palladio run --as-jax FILE.py` does the same for a script, `palladio check --as-jax` for a
check. A missing name is an error at the line that uses it, not at its import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from palladio.compat.modules import Finder, swapped_out

__all__ = ["jax"]


def install() -> Callable[[], None]:
    """Serve imports of JAX from Palladio from here on; returns a function that ends this."""
    finder = Finder()
    real = swapped_out()
    sys.meta_path.insert(0, finder)

    def restore() -> None:
        sys.meta_path.remove(finder)
        swapped_out()
        sys.modules.update(real)

    return restore


@contextmanager
def jax() -> Iterator[None]:
    """A block of code in which `import jax` and imports of its modules give Palladio's names.

    Modules imported inside keep them afterwards. An installed JAX, imported before, is restored after the block; a
    function that imports JAX when it is called gets the one in effect then. `jax.config.update("jax_enable_x64", True)`
    holds for the process.
    """
    restore = install()
    try:
        yield
    finally:
        restore()
