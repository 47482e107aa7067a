"""`FILE.py::FUNCTION`, the target of a subcommand."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from palladio import compat
from palladio.call.launch.launch_call import LaunchCall
from palladio.call.pallas_call import PallasCall
from palladio.trace.functions import shown_signature

SYNTAX = "FILE.py::FUNCTION"
HELP = f"{SYNTAX}: a Python file, and a function in it that takes no arguments and calls kernels"

_AS_JAX = "answer the file's imports of JAX by Palladio; JAX need not be installed"


class MissingTarget(Exception):
    """The target of a command does not exist, or cannot be called without arguments."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name what to run: `target` and `as_jax`."""
    parser.add_argument("target", metavar=SYNTAX, help=HELP)
    declare_as_jax(parser)


def declare_as_jax(parser: argparse.ArgumentParser) -> None:
    """Declare the argument `as_jax`."""
    parser.add_argument("--as-jax", action="store_true", help=_AS_JAX)


def python_file(name: str, expected: str = SYNTAX) -> Path:
    """The file of this name.

    Raises:
        MissingTarget: there is none, or it is not a Python file.
    """
    path = Path(name)
    if not path.is_file():
        raise MissingTarget(f"there is no file {name}")
    if path.suffix != ".py":
        raise MissingTarget(f"{name} is not a Python file; expected {expected}")
    return path


def function(target: str, as_jax: bool = False) -> Callable[[], Any]:
    """The function that a target names, from its file, which is imported as Python would run it.

    Args:
        as_jax: from here on Palladio replaces imports of JAX.

    Raises:
        MissingTarget: there is no such file or function, or it takes arguments.
    """
    file, separator, name = target.partition("::")
    path = python_file(file)
    if as_jax:
        compat.install()
    module = _imported(path)
    if not separator or not name:
        raise MissingTarget(f"which function of {file}? Expected {SYNTAX}{_choices(module)}")
    try:
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise MissingTarget(f"{file} has no function {name}{_choices(module)}") from None
    _require_callable_alone(found, name, _choices(module))
    return found


def _imported(path: Path) -> ModuleType:
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MissingTarget(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _require_callable_alone(found: Any, name: str, choices: str) -> None:
    wanted = f"expected a function that can be called without, such as one that makes arrays and calls it{choices}"
    if isinstance(found, (PallasCall, LaunchCall)):
        raise MissingTarget(f"{name} is a kernel call, {found!r}, which takes arrays; {wanted}")
    if not callable(found):
        raise MissingTarget(f"{name} is not a function but {type(found).__name__}{choices}")
    needed = _needed(found)
    if needed:
        signature = shown_signature(inspect.signature(found))
        raise MissingTarget(f"{name}{signature} needs the arguments {', '.join(needed)}; {wanted}")


def _needed(function: Any) -> list[str]:
    """The parameters without which a function cannot be called."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in optional]


def _choices(module: ModuleType) -> str:
    """The functions of a file that would do."""
    own = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not _needed(value)
    ]
    return f"\n  it has: {', '.join(own)}" if own else ""
