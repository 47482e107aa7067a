"""Dense matrix product: one grid of tiles, the last axis summing into a scratch accumulator."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.library.card_calls import kept_call
from palladio.library.checks import (
    FORWARD,
    LookUp,
    Tile,
    fail,
    require_array,
    require_interpret,
    result_dtype,
    sum_dtype,
    tile_for,
)
from palladio.library.grouped_matmul import gmm, product_of_one_group, tgmm
from palladio.library.namesakes import EXECUTORS, on_hopper, require_hint
from palladio.library.staging import (
    again,
    arrays_of,
    call_key,
    described,
    in_memory_order,
    in_parts,
    kept_calls,
    memory_of,
    row_bytes,
    rows_for,
    stored,
    tensor_of,
    zeros,
)
from palladio.library.tilings import matmul_tiling, tuned

_KEPT = kept_calls()

MOST_UNDIVIDED = 40
"""The most rows that the CPU compiler may sum in another order than more: docs/reliability.md has them by processor."""

_ON_CARD = 64, 64, 64
"""Tiles on a GPU of dtypes that are computed without tensor cores: blocks of the operands are in shared memory."""


@pl.checked_call
def matmul(
    x: Any,
    y: Any,
    *,
    preferred_element_type: Any = None,
    tiling: Tile | LookUp | None = None,
    interpret: Any = None,
    out: Any = None,
) -> Any:
    """The product `x @ y`.

    Args:
        x: `dtype[m, k]`. On the CPU, the transpose of a matrix in row-major order, as in `x.T @ grad`, is read in
            place, and one compiled kernel sums any number of its rows.
        y: `dtype[k, n]`. On the CPU, the transpose of a matrix in row-major order, as in `x @ weight.T`, is read in
            place; a product of few rows then sums in another order than with a copy of it, and its bits may differ.
        preferred_element_type: the dtype of the result, the promoted dtype of both by default. Sums are float32
            (float64 for float64).
        tiling: tile sizes along m, k and n, which they need not divide, or a look-up function of (m, k, n). By
            default, `matmul_tiling` chooses. On Hopper, 16-bit floats have the tiles of `library.hopper.matmul`.
        interpret: as in `palladio.pallas_call`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned.

    Returns:
        `preferred_element_type[m, n]`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes that cannot be multiplied, dtypes that are not floats, or a
            tiling that is not three positive integers.
    """
    usual = preferred_element_type is None and tiling is None and interpret is None
    known = "matmul", preferred_element_type, None, False, True
    done = None if type(x) is np.ndarray else kept_call(known, interpret, (x, y), out)
    if done is not None or (usual and (done := again(_KEPT, (x, y), False, out)) is not None):
        return done
    turned = in_memory_order(y, interpret) if _KEPT.usable else None
    transpose, matrix = (False, y) if turned is None else (True, turned)
    arrays = arrays_of(x, y) if preferred_element_type is None and _KEPT.usable else None
    if arrays is not None:
        found = matmul(*arrays, tiling=tiling, interpret=interpret, out=memory_of(out))
        if usual and x.is_contiguous():
            _remember(arrays[0], arrays[1], transpose, (x, matrix))
        return tensor_of(found) if out is None else out
    if tiling is None and _KEPT.usable and _is_read_by_columns(x, y, out, interpret):
        return _sum_of_rows(x, y, preferred_element_type, interpret, out)
    key = call_key(x, y, (), preferred_element_type, tiling, transpose, filled=True)
    kept = _KEPT.find(key, interpret)
    if kept is not None:
        if usual:
            _remember(x, y, transpose, (x, matrix))
        return kept(x, matrix, out=out, rows=x.shape[0])
    if (hopper := on_hopper(interpret, (x, y))) is not None:
        require_hint(tiling)
        return hopper.matmul(x, y, preferred_element_type=preferred_element_type, interpret=interpret, out=out)
    on_card = pl.chosen_executor(interpret, (x, y)) in EXECUTORS
    tiling = _ON_CARD if on_card and tiling is None else tiling
    m, k, n = _sizes(x, y)
    dtype = result_dtype(preferred_element_type, x, y)
    usable = key is not None and _KEPT.usable
    rows = rows_for(m, row_bytes(x), tiling) if usable else m
    tile = tile_for(tiling, FORWARD, rows, k, n, tuned(matmul_tiling, "matmul", x, y))
    if 0 in (m, k, n):
        return stored(zeros((m, n), dtype, x, y), out)
    viewed = not on_card and (isinstance(y, np.ndarray) or hasattr(y, "new_empty"))  # y[None] does not copy it
    if usable and viewed and (is_group(m, rows, tile) if tiling is None else _is_tiled_group(m, k, n, tile)):
        kept = _Group(preferred_element_type, tiling, transpose, interpret)
        _KEPT.keep(key, kept, interpret)
        return kept(x, matrix, out, m)
    if usable and tiling is None:
        parts, whole = in_parts(m, (x, y), n, dtype, out)
        for part, _ in parts:
            matmul(x[part], y, preferred_element_type=preferred_element_type, interpret=interpret, out=whole[part])
        if parts:
            return whole if out is None else out
    if not usable:
        call = _call(rows, k, n, tile, dtype, sum_dtype(x, y), require_interpret(interpret))
        return stored(call(x, y), out)
    kept = staged(described(x, rows), described(matrix), tile, dtype, interpret, transpose)
    _KEPT.keep(key, kept, interpret)
    return kept(x, matrix, out=out, rows=m)


def _sizes(x: Any, y: Any) -> tuple[int, int, int]:
    """The sizes m, k and n of a product of checked shapes."""
    (m, k), (others, n) = require_array(x, "x", 2, "[m, k]"), require_array(y, "y", 2, "[k, n]")
    if others != k:
        rule, wanted, hint = "the matrices do not multiply", f"[{k}, n]", f"y.T has {k} rows" if n == k else None
        raise fail(pl.PalladioValueError, rule, argument="y", expected=wanted, got=(others, n), hint=hint)
    return m, k, n


def _is_read_by_columns(x: Any, y: Any, out: Any, interpret: Any) -> bool:
    """True if `x` is the transpose of a matrix in row-major order, as in a gradient of weights, and the shapes fit."""
    if in_memory_order(x, interpret) is None or np.shape(y)[:-1] != (x.shape[1],):
        return False
    return out is None or tuple(getattr(out, "shape", ())) == (x.shape[0], y.shape[1])


def _sum_of_rows(x: Any, y: Any, dtype: Any, interpret: Any, out: Any) -> Any:
    """The product as `tgmm` with one group, which reads the rows of `x.T` and `y` in place, for any number of them."""
    sizes, whole = np.array([x.shape[1]], np.int32), None if out is None else out[None]
    try:
        found = tgmm(x, y, sizes, dtype, interpret=interpret, out=whole)
    except pl.PalladioError as error:
        _name_operands(error)
        raise
    return found[0] if out is None else out


def _remember(x: Any, y: Any, transpose: bool, given: tuple[Any, Any]) -> None:
    """Keep the product by default options for operands like these, if it can do without checks.

    Args:
        x, y: the operands; tensors as arrays on them, if NumPy has their dtypes.
        transpose: whether the right operand is the transpose of the matrix that is read.
        given: the caller's left operand, and that matrix.
    """
    kept = _KEPT.find(call_key(x, y, (), None, None, transpose, filled=True))
    if kept is None:
        return
    operands = x, y.T if transpose else y
    if type(given[0]) is np.ndarray:
        run = kept.prepared(operands, x.shape[0])
        if run is not None:
            _KEPT.keep_again(given, transpose, lambda *arrays, out=None: run(arrays, out))
        return
    run = kept.in_memory(operands, x.shape[0])
    if run is not None:
        _KEPT.keep_again_in_memory(given, transpose, lambda x, y, addresses, out=None: run(addresses, (x, y), out))


def staged(x: Any, y: Any, tile: Tile, dtype: Any, interpret: Any = None, transpose: bool = False) -> Any:
    """The product in tiles, staged for operands of these shapes and dtypes, the right one `[n, k]` with `transpose`."""
    (m, k), n = x.shape, y.shape[0 if transpose else 1]
    call = _call(m, k, n, tile, dtype, sum_dtype(x, y), require_interpret(interpret), transpose)

    def product(x: Any, y: Any) -> Any:
        return call(x, y)

    return pl.jit(product, interpret=interpret).ahead(x, y)


def is_group(m: int, rows: int, tile: Tile) -> bool:
    """True if m rows are computed as one group: few rows, or fewer than those of a kernel with one tile of rows.

    Few rows may be summed in another order than more, so that they are not divided among the threads.
    """
    return 4 < m <= MOST_UNDIVIDED or m < rows == tile[0]


def _is_tiled_group(m: int, k: int, n: int, tile: Tile) -> bool:
    """True if m rows in tiles that the caller chose are computed as one group, whose kernel serves all numbers of rows.

    The rows are not divided among the threads: either one tile has all of them, or there are enough tiles of columns.
    """
    tm, tk, tn = tile
    spread = tk == k and min(tm, tn) > 4 and pl.cdiv(n, tn) >= pl.processor().threads
    return m > 4 and (tm >= m or spread)


@dataclass(frozen=True)
class _Group:
    """The product as that of one group, whose number of rows is known when the kernel runs.

    Padding rows of a copy are not computed, and a product of few rows does not pack the matrix.
    """

    dtype: Any
    tiling: Any
    transpose: bool
    interpret: Any

    def __call__(self, x: Any, y: Any, out: Any, rows: int) -> Any:
        options = {"transpose_rhs": self.transpose, "interpret": self.interpret, "out": out}
        try:
            return gmm(x, y[None], [rows], self.dtype, self.tiling, **options)
        except pl.PalladioError as error:
            _name_operands(error)
            raise

    def prepared(self, arrays: Sequence[Any], rows: int) -> Callable[..., Any] | None:
        """The product by default options, as `prepared` of a staged function."""
        x, y = arrays
        run = product_of_one_group(x, y[None], self.transpose, False)
        return run and (lambda arrays, out=None: run((arrays[0], arrays[1][None]), out))

    def in_memory(self, arrays: Sequence[Any], rows: int) -> Callable[..., Any] | None:
        """The same as `in_memory` of a staged function."""
        x, y = arrays
        return product_of_one_group(x, y[None], self.transpose, True)


_NAMES = {"lhs": "x", "rhs": "y"}


def _name_operands(error: pl.PalladioError) -> None:
    """Name the operands of `matmul` in an error of `gmm` or `tgmm` about one, or about memory that `out` shares."""
    error.argument = _NAMES.get(error.argument or "", error.argument)
    if error.argument == "out" and isinstance(error.got, str):
        error.got = re.sub(r"\b[lr]hs\b", lambda found: _NAMES[found[0]], error.got)


@functools.cache
def _call(m: int, k: int, n: int, tile: Tile, dtype: Any, sums: Any, interpret: Any, transpose: bool = False) -> Any:
    """The product of matrices of these sizes, a function of both; with `transpose`, of the right one's transpose."""
    tm, tk, tn = tile
    steps = pl.cdiv(k, tk)

    def block_of(y_ref: Any) -> Any:
        return y_ref[...].T if transpose else y_ref[...]

    def whole(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.dot(x_ref[...], block_of(y_ref), preferred_element_type=sums).astype(out_ref.dtype)

    def in_parts(x_ref: Any, y_ref: Any, out_ref: Any, sum_ref: Any) -> None:
        step = pl.program_id(2)

        @pl.when(step == 0)
        def start() -> None:
            sum_ref[...] = jnp.zeros(sum_ref.shape, sum_ref.dtype)

        x_tile, y_tile = x_ref[...], block_of(y_ref)
        if k % tk:
            # The last tile extends past the edge, where elements are uninitialised: they must not enter the sum.
            inside = jnp.arange(tk) < k - step * tk
            x_tile, y_tile = jnp.where(inside[None, :], x_tile, 0), jnp.where(inside[:, None], y_tile, 0)
        sum_ref[...] += jnp.dot(x_tile, y_tile, preferred_element_type=sum_ref.dtype)

        @pl.when(step == steps - 1)
        def finish() -> None:
            out_ref[...] = sum_ref[...].astype(out_ref.dtype)

    return pl.pallas_call(
        whole if tk == k else in_parts,
        pl.ShapeDtypeStruct((m, n), dtype),
        grid=(pl.cdiv(m, tm), pl.cdiv(n, tn), steps),
        in_specs=[
            pl.BlockSpec((tm, tk), lambda i, j, step: (i, step)),
            pl.BlockSpec((tn, tk), lambda i, j, step: (j, step))
            if transpose
            else pl.BlockSpec((tk, tn), lambda i, j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((tm, tn), lambda i, j, step: (i, j)),
        scratch_shapes=[] if tk == k else [pltpu.VMEM((tm, tn), sums)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        cost_estimate=pl.CostEstimate(2 * m * k * n, 0, 0),
        interpret=interpret,
        name="matmul",
    )
