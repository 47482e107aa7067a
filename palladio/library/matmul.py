"""Dense matrix product: one grid of tiles, the last axis summing into a scratch accumulator."""

from __future__ import annotations

from typing import Any

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.library.checks import FORWARD, LookUp, Tile, fail, float_dtype, require_array, sum_dtype, tile_for, zeros
from palladio.library.tilings import matmul_tiling


@pl.checked_call
def matmul(
    x: Any,
    y: Any,
    *,
    preferred_element_type: Any = None,
    tiling: Tile | LookUp | None = None,
    interpret: Any = None,
) -> Any:
    """The product `x @ y`.

    Args:
        x: `dtype[m, k]`.
        y: `dtype[k, n]`.
        preferred_element_type: the dtype of the result, that of `x` and `y` together by default. Sums are float32
            (float64 for float64).
        tiling: tile sizes along m, k and n, which they need not divide, or a look-up function of (m, k, n). Where none
            is given, `matmul_tiling` chooses.
        interpret: as in `palladio.pallas_call`.

    Returns:
        `preferred_element_type[m, n]`.

    Raises:
        PalladioValueError, PalladioTypeError: shapes that do not multiply, no floats, or a tiling that is not three
            positive integers.
    """
    m, k = require_array(x, "x", 2, "[m, k]")
    rows, n = require_array(y, "y", 2, "[k, n]")
    if rows != k:
        rule, wanted = "the matrices do not multiply", f"[{k}, n]"
        raise fail(pl.PalladioValueError, rule, argument="y", expected=wanted, got=(rows, n))
    if preferred_element_type is None:
        preferred_element_type = jnp.result_type(x, y)
    dtype = float_dtype(preferred_element_type, "preferred_element_type")
    tm, tk, tn = tile_for(tiling, FORWARD, m, k, n, matmul_tiling)
    if 0 in (m, k, n):
        return zeros((m, n), dtype, x, y)
    steps = pl.cdiv(k, tk)
    sums = sum_dtype(x, y)

    def whole(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=sums).astype(out_ref.dtype)

    def in_parts(x_ref: Any, y_ref: Any, out_ref: Any, sum_ref: Any) -> None:
        step = pl.program_id(2)

        @pl.when(step == 0)
        def start() -> None:
            sum_ref[...] = jnp.zeros(sum_ref.shape, sum_ref.dtype)

        x_tile, y_tile = x_ref[...], y_ref[...]
        if k % tk:
            # The last tile reaches past the edge, where the elements are no numbers: they must not enter the sum.
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
            pl.BlockSpec((tk, tn), lambda i, j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((tm, tn), lambda i, j, step: (i, j)),
        scratch_shapes=[] if tk == k else [pltpu.VMEM((tm, tn), sums)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        cost_estimate=pl.CostEstimate(2 * m * k * n, 0, 0),
        interpret=interpret,
    )(x, y)
