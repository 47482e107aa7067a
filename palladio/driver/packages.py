"""Packages whose code and globals are assumed not to change while a program runs, by name and location."""

from __future__ import annotations

import functools
import os
import sys

_FIXED = frozenset(("palladio", "numpy", "ml_dtypes", "scipy", "jax", "jaxlib", "torch"))
_INSTALLED = ("site-packages", "dist-packages")


def package_of(module: str | None) -> str:
    """The outermost package of a module, by name."""
    return (module or "").partition(".")[0]


def is_fixed(package: str) -> bool:
    """True if a package is assumed not to change: the standard library and the array libraries.

    A user's own module may have the name of one of the standard library, e.g. `profile.py`.
    """
    if package in _FIXED:
        return True
    module = sys.modules.get(package)
    if package not in sys.stdlib_module_names or module is None:
        return False
    file = getattr(module, "__file__", None)
    if file is not None:
        return _is_standard(file)
    return getattr(getattr(module, "__spec__", None), "origin", None) in ("built-in", "frozen")


def is_installed(package: str) -> bool:
    """True if a package was installed, and so is not under development by the user."""
    return _is_below_packages(getattr(sys.modules.get(package), "__file__", None) or "")


@functools.cache
def _is_standard(file: str) -> bool:
    return file.startswith(_standard()) and not _is_below_packages(file)


@functools.cache
def _standard() -> tuple[str, ...]:
    """The folders of the standard library; its extension modules may be in a separate one."""
    import sysconfig  # many kernels use no module of it, and importing this one takes milliseconds

    known = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
    folders = {os.path.dirname(os.__file__), *known, os.path.join(sys.base_prefix, "DLLs")}
    return tuple(os.path.join(folder, "") for folder in folders)


@functools.cache
def _is_below_packages(file: str) -> bool:
    return any(part in file for part in _INSTALLED)
