"""`palladio tune FUNCTION M K N`: tiles of a library product by measurement, kept for later calls."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from palladio.base.errors import PalladioError
from palladio.driver.cards import card_name
from palladio.driver.processor import processor
from palladio.types import dtypes
from palladio.types.types import ShapeDtypeStruct

_ATTENTION = ("attention", "attention_vjp")
FUNCTIONS = ("gmm", "tgmm", "matmul", *_ATTENTION, "moe_mlp")
_ON_CARD = (*_ATTENTION, "moe_mlp")
"""The functions that have tilings on a GPU only."""
_TRANSPOSED = {"cpu": ("gmm",), "hopper": ("gmm", "matmul", "moe_mlp")}
"""The functions that take transposed right operands, by executor."""
_GROUPED = ("gmm", "tgmm", "moe_mlp")
_SCALED = ("gmm", "matmul")
_BLOCK = 128
"""The elements along k, and the columns, that share a factor of blocks."""


def add(subparsers: Any) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "tune",
        help="measure tiles of a product of the library, and keep the fastest",
        description="Measures tiles of a product on normal random numbers, beside those that the library chooses, in "
        "turns. The fastest are kept in the cache folder, and later calls of that size, dtype and number of groups use "
        "them, on this processor and number of threads, or on GPUs of this kind. Run it while nothing else runs.",
    )
    parser.add_argument(
        "function", choices=FUNCTIONS, help="a function of palladio.library, attention_vjp of palladio.library.hopper"
    )
    for name, text in (
        ("m", "rows; of tgmm, the summed axis; of attention, queries; of moe_mlp, tokens"),
        ("k", "summed axis; of tgmm, rows; of attention, keys"),
        ("n", "columns; of attention, the width of keys and values; of moe_mlp, the inner size of an expert"),
    ):
        parser.add_argument(name, type=_count, help=text)
    parser.add_argument(
        "--groups", type=_count, default=1, help="groups of gmm and tgmm, experts, of even sizes unless --sizes"
    )
    parser.add_argument("--sizes", help="sizes of the groups, as 100,20,0,8")
    parser.add_argument("--each", type=_count, default=1, help="experts of each token")
    parser.add_argument("--activation", default="swiglu", help="of moe_mlp, by default swiglu")
    parser.add_argument("--heads", default="1", help="heads of attention; 32,8 for fewer of keys and values")
    parser.add_argument("--causal", action="store_true", help="a query attends to keys before it only")
    parser.add_argument("--result", help="dtype of the result, on a GPU")
    parser.add_argument("--factors", choices=("tensors", "rows", "blocks"), help="of gmm and matmul, on a GPU")
    parser.add_argument("--dtype", default="float32", help="of the operands, by default float32")
    parser.add_argument(
        "--transpose-rhs", action="store_true", help="the matrices of gmm, on a GPU that of matmul, are [n, k]"
    )
    parser.add_argument("--executor", choices=("cpu", "hopper"), default="cpu", help="hopper for the first GPU")
    parser.add_argument("--seconds", type=float, default=2.0, help="time to measure each size, by default 2")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"1 or more, got {text!r}")
    return int(text)


def run(options: Namespace) -> int:
    """Measure, and print the results."""
    from palladio import library

    on_card = options.executor == "hopper"
    try:
        lhs, rhs, sizes = _operands(options)
        function = getattr(library.hopper if on_card else library, options.function)
        further = _further(options, lhs, rhs)
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"{options.function} {options.m} × {options.k} × {options.n}", total=1.0)
            found = library.tune(
                function,
                lhs,
                rhs,
                sizes,
                transpose_rhs=options.transpose_rhs,
                seconds=options.seconds,
                progress=lambda done: bar.update(task, completed=done),
                interpret=options.executor,
                **further,
            )
    except (PalladioError, ValueError, ArgumentTypeError) as error:
        if isinstance(error, PalladioError):
            error.location = None  # no line of the user's
        print(f"palladio: {error.with_traceback(None)}", file=sys.stderr)
        return 2
    console = Console(soft_wrap=True, highlight=False)
    for each in found:
        console.print(_table(options, each))
    console.print(f"kept for {card_name() if on_card else _host()}, {options.dtype}")
    return 0


def _host() -> str:
    host = processor()
    return f"{host.name}, {host.threads} threads"


def _operands(options: Namespace) -> tuple[Any, Any, Any]:
    """The types of the operands, and the sizes of the groups.

    Raises:
        ValueError: sizes that are not integers, or of a function without groups; the transpose of an operand that has
            to be `[k, n]`.
        ArgumentTypeError: heads that are not positive integers.
    """
    m, k, n, dtype = options.m, options.k, options.n, dtypes.canonical(options.dtype)
    columns = n * (2 if options.function == "moe_mlp" and _gated(options) else 1)
    matrix = (columns, k) if options.transpose_rhs else (k, columns)
    if options.executor == "cpu" and options.function in _ON_CARD:
        raise ValueError(f"{options.function} has tilings with --executor hopper only")
    if options.transpose_rhs and options.function not in _TRANSPOSED[options.executor]:
        raise ValueError("--transpose-rhs is for gmm, and for matmul and moe_mlp with --executor hopper")
    if (options.sizes is not None or options.groups > 1) and options.function not in _GROUPED:
        raise ValueError(f"--groups and --sizes are for {', '.join(_GROUPED)}")
    if options.function in _ATTENTION:
        heads, *fewer = map(_count, options.heads.split(","))
        return ShapeDtypeStruct((heads, m, n), dtype), ShapeDtypeStruct((*(fewer or [heads]), k, n), dtype), None
    if options.function == "matmul":
        return ShapeDtypeStruct((m, k), dtype), ShapeDtypeStruct(matrix, dtype), None
    if options.sizes is None:
        rows = m * (options.each if options.function == "moe_mlp" else 1)
        sizes = np.diff(np.arange(options.groups + 1) * rows // options.groups)
    else:
        sizes = np.array([int(size) for size in options.sizes.split(",")])
    sizes = sizes.astype(np.int32)
    if options.function == "tgmm":
        return ShapeDtypeStruct((k, m), dtype), ShapeDtypeStruct((m, n), dtype), sizes
    return ShapeDtypeStruct((m, k), dtype), ShapeDtypeStruct((len(sizes), *matrix), dtype), sizes


def _gated(options: Namespace) -> bool:
    """True if a result of the activation takes two columns.

    Raises:
        ValueError: no activation has this name.
    """
    from palladio.library.activations import ACTIVATIONS

    if options.activation not in ACTIVATIONS:
        raise ValueError(f"--activation is one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[options.activation].gated


def _further(options: Namespace, lhs: Any, rhs: Any) -> dict[str, Any]:
    """The other arguments of `tune`, those of a GPU.

    Raises:
        ValueError: another executor, or factors of a function that takes none.
    """
    if options.executor == "cpu" and (options.result or options.factors):
        raise ValueError("--result and --factors are for --executor hopper")
    if options.factors and options.function not in _SCALED:
        raise ValueError("--factors are for gmm and matmul")
    found = {"causal": options.causal, "activation": options.activation, "preferred_element_type": options.result}
    if options.factors is None:
        return found
    m, k, n, groups = options.m, options.k, options.n, rhs.shape[:-2]
    parts, columns = -(-k // _BLOCK), -(-n // _BLOCK)
    left, right = {"tensors": ((), ()), "rows": ((m,), (n,)), "blocks": ((parts, m), (columns, parts))}[options.factors]
    right = (*groups, *right) if options.factors != "tensors" else right
    return {**found, "lhs_scale": ShapeDtypeStruct(left, np.float32), "rhs_scale": ShapeDtypeStruct(right, np.float32)}


def _table(options: Namespace, found: Any) -> Table:
    """The tilings that were measured, the fastest first."""
    m, k, n = found.sizes
    table = Table("tiling", "ms", "", title=f"{options.function} {m} × {k} × {n}", title_justify="left")
    for tiling, seconds in sorted(found.seconds.items(), key=lambda item: item[1]):
        notes = [note for note, other in (("kept", found.tiling), ("the model's", found.model)) if tiling == other]
        table.add_row(_shown(tiling), f"{1e3 * seconds:.3g}", ", ".join(notes))
    return table


def _shown(tiling: Any) -> str:
    """A tiling, or the part of a configuration that is measured."""
    if isinstance(tiling, tuple):
        return str(tiling)
    if hasattr(tiling, "block_step"):
        return f"{tiling.block_own} rows, {tiling.block_step} rows of a step, {tiling.stages} stages"
    if not hasattr(tiling, "tile_m"):
        return f"{tiling.block_q} queries, {tiling.block_kv} keys, {tiling.stages} stages"
    tile = f"({tiling.tile_m}, {tiling.tile_k}, {tiling.tile_n}), {tiling.stages} stages, split {tiling.split}"
    cluster = f", cluster {tiling.cluster}" if tiling.cluster else ""
    return f"{tile}{cluster}, bands {tiling.snake} {tiling.snake_width}"
