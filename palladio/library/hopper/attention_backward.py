"""Attention backward: one kernel for the gradient of the queries, one for those of keys and values.

Each recomputes the weights from the logarithms that the forward pass has saved, so that no scores are stored (Dao et
al., "FlashAttention", 2022). A block owns queries, or keys, and iterates over the others, which a ring loads. No
gradient is summed across blocks, so that results do not depend on their order.

    weights = exp(q k^T * scale - lse)            dv = weights^T dout
    slopes  = weights * (dout v^T - delta)        dq = scale * slopes k        dk = scale * slopes^T q

where `delta` is the sum of `dout * out` along each row.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.library.checks import dtype_of, fail
from palladio.library.hopper.attention import (
    AttentionProblem,
    as_heads,
    attention_problem,
    masked_scores,
    of_kernel,
    problem_parts,
    rows_of,
)
from palladio.library.hopper.kept import RowBucket, counting, keeps, kernel_rows, staged
from palladio.library.hopper.limits import (
    CARD,
    COMPUTE_GROUPS,
    COMPUTE_REGISTERS,
    MEMORY_GROUP,
    MEMORY_REGISTERS,
    require_config,
    require_shared,
)
from palladio.library.hopper.ring import Ring, ring_scratch
from palladio.library.hopper.tuned import Listed, kept
from palladio.library.staging import zeros

Ref = Any
Value = Any

LOG2_E = math.log2(math.e)
TOGETHER = 256
"""The greatest total width of keys and values for which one warpgroup holds the accumulators of both gradients."""

STEPS, STAGES = (32, 48, 64, 80, 96, 112), (2, 3, 4)
"""Rows of a step, and numbers of stages, that `measurement` tries."""

HELD, REGISTER_BYTES = 232, 4
"""The most registers of a thread that hold sums, scores and slopes: with more, ptxas spills (NVRTC 13.5)."""

MOST_WIDTH = 256
"""The widest keys and values: the accumulator of one gradient is in the registers of a warpgroup."""


@pl.checked_call
@dataclass(frozen=True)
class AttentionGradientConfig:
    """The division of a block's work in `attention_vjp`.

    Args:
        block_own: queries, or keys, that each of the two compute warpgroups owns; on the device a multiple of 64.
        block_step: the number of the others in one step; on the device a multiple of 16.
        stages: the number of steps that are buffered in shared memory.

    By default a step is 64 rows, and 32 if the total width of keys and values is over 256, to fit into shared memory.
    Both warpgroups then own the same keys: one computes their gradient, the other one that of the values.
    """

    block_own: int = 64
    block_step: int = 64
    stages: int = 2


def _owned(problem: AttentionProblem) -> int:
    """The number of queries that a block owns, and of keys unless its warpgroups share them."""
    return COMPUTE_GROUPS * int(problem.config.block_own)


def _shared(problem: AttentionProblem) -> bool:
    """True if both warpgroups of a block own the same keys, since the gradients of keys and values are too wide."""
    return problem.width + problem.out_width > TOGETHER


def _weights(problem: AttentionProblem, scores: Value, lse: Value, row: Value, column: Value, turned: bool) -> Value:
    """The weights of scores, f32[queries, keys] or transposed; 0 for queries with an infinite lse."""
    scores = masked_scores(problem, scores * (problem.scale * LOG2_E), row, column, transposed=turned)
    logarithms = lse * LOG2_E
    return jnp.exp2(scores - (logarithms[None, :] if turned else logarithms[:, None]))


def _row_values(ref: Ref, head: Value, first: Value, count: int, other: float) -> Value:
    """f32[count]: a value of each query from `first`; `other` past the last query."""
    inside = first + jnp.arange(count) < ref.shape[1]
    return plgpu.load(ref.at[head, pl.ds(first, count)], mask=inside, other=other)


def _queries_kernel(
    q: Ref, k: Ref, v: Ref, grad: Ref, lse: Ref, delta: Ref, dq: Ref, *, problem: AttentionProblem, **scratch: Ref
) -> None:
    """One block: the gradient of some queries of one head."""
    config = problem.config
    own, step_rows = config.block_own, config.block_step
    ring = Ring.of(scratch, "steps")
    group, head = pl.axis_index("warpgroup"), pl.axis_index("head")
    block = pl.axis_index("block")
    if problem.causal:
        block = pl.axis_size("block") - 1 - block  # the longest blocks first, as in `attention`
    first = block * _owned(problem)
    steps = (problem.present_keys + (step_rows - 1)) // step_rows
    if problem.causal:
        steps = jnp.minimum(steps, (first + _owned(problem) + step_rows - 1) // step_rows)

    @pl.when(group == MEMORY_GROUP)
    def _() -> None:
        plgpu.set_max_registers(MEMORY_REGISTERS, action="decrease")
        _load_own(scratch, (q, grad), head, first, own)

        @pl.loop(0, steps)
        def _(step: Value) -> None:
            rows = pl.ds(step * step_rows, step_rows)
            ring.fill(step, *(rows_of(each, head // problem.group, rows) for each in (k, v)))

        ring.await_drained(steps)

    @pl.when(group < COMPUTE_GROUPS)
    def _() -> None:
        plgpu.set_max_registers(COMPUTE_REGISTERS, action="increase")
        row = first + group * own
        queries, grads = (scratch[name].at[group] for name in ("own_0", "own_1"))
        logarithms = _row_values(lse, head, row, own, jnp.inf)
        deltas = _row_values(delta, head, row, own, 0.0)
        plgpu.barrier_wait(scratch["own_filled"].at[group])

        def scoped(total: Ref) -> None:
            @pl.loop(0, steps)
            def _(step: Value) -> None:
                keys, values = ring.take(step)
                scores, slopes = _both_products(queries, keys.T, grads, values.T)
                weights = _weights(problem, scores, logarithms, row, step * step_rows, turned=False)
                slopes = weights * (slopes - deltas[:, None])
                plgpu.wgmma(total, slopes.astype(keys.dtype), keys)
                plgpu.wgmma_wait(0)
                ring.give_back(step)

            _write(total[...] * problem.scale, queries, rows_of(dq, head, pl.ds(row, own)))

        pl.run_scoped(scoped, plgpu.ACC((own, problem.width)))
        plgpu.wait_smem_to_gmem(0)


def _keys_kernel(
    q: Ref,
    k: Ref,
    v: Ref,
    grad: Ref,
    lse: Ref,
    delta: Ref,
    dk: Ref,
    dv: Ref,
    *,
    problem: AttentionProblem,
    **scratch: Ref,
) -> None:
    """One block: the gradients of some keys and values of one head, from all queries that attend to them."""
    config = problem.config
    own, step_rows = config.block_own, config.block_step
    ring = Ring.of(scratch, "steps")
    group, kv_head = pl.axis_index("warpgroup"), pl.axis_index("head")
    shared = _shared(problem)
    first = pl.axis_index("block") * (own if shared else _owned(problem))
    skipped = first // step_rows if problem.causal else 0
    each = jnp.maximum(pl.cdiv(problem.queries, step_rows) - skipped, 0)
    steps = each * problem.group

    def place(step: Value) -> tuple[Value, Value]:
        """The head of a step, and its first query."""
        return kv_head * problem.group + step // each, (skipped + step % each) * step_rows

    @pl.when(group == MEMORY_GROUP)
    def _() -> None:
        plgpu.set_max_registers(MEMORY_REGISTERS, action="decrease")
        _load_own(scratch, (k, v), kv_head, first, own, 1 if shared else COMPUTE_GROUPS)

        @pl.loop(0, steps)
        def _(step: Value) -> None:
            head, query = place(step)
            rows = pl.ds(query, step_rows)
            values = (each.at[pl.ds(head, 1), rows] for each in (lse, delta))
            ring.fill(step, rows_of(q, head, rows), rows_of(grad, head, rows), *values)

        ring.await_drained(steps)

    @pl.when(group < COMPUTE_GROUPS)
    def _() -> None:
        plgpu.set_max_registers(COMPUTE_REGISTERS, action="increase")
        owner = 0 if shared else group
        column = first + owner * own
        keys, values = (scratch[name].at[owner] for name in ("own_0", "own_1"))
        plgpu.barrier_wait(scratch["own_filled"].at[owner])

        def gradients(total_k: Ref | None, total_v: Ref | None) -> None:
            """Sum and write the gradients that have an accumulator."""

            @pl.loop(0, steps)
            def _(step: Value) -> None:
                query = place(step)[1]
                _add_keys_step(problem, ring.take(step), (keys, values), (query, column), total_k, total_v)
                ring.give_back(step)

            if shared:
                plgpu.barrier_arrive_and_wait(scratch["read"])  # the other warpgroup reads both buffers as well
            if total_k is not None:
                _write(total_k[...] * problem.scale, keys, rows_of(dk, kv_head, pl.ds(column, own)))
            if total_v is not None:
                _write(total_v[...], values, rows_of(dv, kv_head, pl.ds(column, own)))

        accumulators = plgpu.ACC((own, problem.width)), plgpu.ACC((own, problem.out_width))
        if shared:
            of_keys, of_values = (
                functools.partial(pl.run_scoped, *each)
                for each in (
                    (lambda total: gradients(total, None), accumulators[0]),
                    (lambda total: gradients(None, total), accumulators[1]),
                )
            )
            pl.when(group == 0)(of_keys)
            pl.when(group == 1)(of_values)
        else:
            pl.run_scoped(gradients, *accumulators)
        plgpu.wait_smem_to_gmem(0)


def _add_keys_step(
    problem: AttentionProblem,
    blocks: list[Ref],
    own: tuple[Ref, Ref],
    corner: tuple[Value, Value],
    total_k: Ref | None,
    total_v: Ref | None,
) -> None:
    """Add the contributions of a step's queries to the gradients of the owned keys and values.

    Args:
        blocks: the queries, the gradient of their result, and their `lse` and `delta`.
        corner: the first query, and the first key.
    """
    (keys, values), (queries, grads, logarithms, deltas) = own, blocks
    slopes: Value = None
    if total_k is None:
        scores = _product(keys, queries.T)
    else:
        scores, slopes = _both_products(keys, queries.T, values, grads.T)
    # Past the last query all operands are 0: these add weights of 1 times 0.
    weights = _weights(problem, scores, logarithms[0], *corner, turned=True)
    if total_v is not None:
        plgpu.wgmma(total_v, weights.astype(grads.dtype), grads)
    if total_k is not None:
        slopes = weights * (slopes - deltas[0][None, :])
        plgpu.wgmma(total_k, slopes.astype(queries.dtype), queries)
    plgpu.wgmma_wait(0)


def _load_own(
    scratch: dict[str, Ref],
    sources: tuple[Ref, Ref],
    head: Value,
    first: Value,
    own: int,
    owners: int = COMPUTE_GROUPS,
) -> None:
    """Start the copies of the parts that the block's compute warpgroups own."""
    for each in range(owners):
        for number, source in enumerate(sources):
            rows = rows_of(source, head, pl.ds(first + each * own, own))
            plgpu.copy_gmem_to_smem(rows, scratch[f"own_{number}"].at[each], scratch["own_filled"].at[each])


def _product(a: Ref, b: Ref) -> Value:
    """The product `a @ b`."""

    def scoped(acc: Ref) -> Value:
        plgpu.wgmma(acc, a, b)
        plgpu.wgmma_wait(0)
        return acc[...]

    return pl.run_scoped(scoped, plgpu.ACC((a.shape[0], b.shape[1])))


def _both_products(a: Ref, b: Ref, c: Ref, d: Ref) -> tuple[Value, Value]:
    """The products `a @ b` and `c @ d`."""

    def scoped(first: Ref, second: Ref) -> tuple[Value, Value]:
        plgpu.wgmma(first, a, b)
        plgpu.wgmma(second, c, d)
        plgpu.wgmma_wait(0)
        return first[...], second[...]

    shapes = (a.shape[0], b.shape[1]), (c.shape[0], d.shape[1])
    one, other = pl.run_scoped(scoped, *map(plgpu.ACC, shapes))
    return one, other


def _write(value: Value, staged: Ref, out: Ref) -> None:
    """Start the copy of a gradient to global memory, through the buffer of its operand, which has been read."""
    staged[...] = value.astype(staged.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(staged, out)


@pl.checked_call
def attention_vjp(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    grad: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    config: AttentionGradientConfig | None = None,
    interpret: Any = None,
) -> tuple[Any, Any, Any]:
    """The gradients of `attention` for a gradient of its result.

    Args:
        q, k, v, causal, scale: as in `attention`.
        out, lse: the results of `attention(..., save_residuals=True)`: `dtype[..., m, e]` and `f32[..., m]`.
        grad: `dtype[..., m, e]`, the gradient of `out`. Both are read in place in the orders that `attention` takes.
        config: the division of a block's work.
        interpret: as in `palladio.gpu.kernel`.

    Returns:
        The gradients of q, k and v, each in memory as its operand where that is read in place. Sums are in float32;
        weights and slopes are rounded to the dtype of the operands before the products.

    Raises:
        PalladioTypeError, PalladioValueError: as in `attention`; residuals of another shape or dtype; heads of keys
            or values wider than 256.
    """
    problem, lead = attention_problem(q, k, v, causal, scale)
    chosen = _division(problem, dtype_of(q)) if config is None else config
    config = require_config(chosen, AttentionGradientConfig)
    m, d, e = problem.queries, problem.width, problem.out_width
    _require_residuals({"out": out, "grad": grad}, (*lead, m, e), dtype_of(q))
    _require_residuals({"lse": lse}, (*lead, m), jnp.dtype("float32"))
    if max(d, e) > MOST_WIDTH:
        rule, got = "the gradient of keys or values does not fit into registers", f"{d} and {e}"
        raise fail(pl.PalladioValueError, rule, argument="k, v", expected=f"widths of at most {MOST_WIDTH}", got=got)
    problem = dataclasses.replace(problem, config=config)
    require_shared(_shared_bytes(problem, dtype_of(q)))
    if 0 in (problem.heads, m, e):
        dq, dk, dv = (zeros(tuple(x.shape), dtype_of(q), q, k, v) for x in (q, k, v))
        return dq, dk, dv
    shapes = [tuple(x.shape) for x in (q, k, v)]
    operands = [of_kernel(x) for x in (q, k, v, grad)]
    # Rows along one axis have the same place in kernels for more of them; the copy engine takes those of several heads.
    given = (*operands, _matrix(of_kernel(out)), _matrix(operands[3]), lse.reshape((-1,)))
    key, kernels = ("attention_vjp", causal, problem.scale, config), functools.partial(_gradients, problem, interpret)
    bucket = _bucket(problem, dtype_of(q), interpret, [x.shape[0] // m for x in given[4:]])
    run = staged(key, lambda: kernels, interpret, given, bucket) if keeps(given) else kernels
    dq, dk, dv = map(as_heads, run(*given), shapes)
    return dq, dk, dv


def _matrix(operand: Any) -> Any:
    """The rows of all heads, `[heads * m, e]`; of an operand that has tokens first, `[batches * m, heads * e]`."""
    return operand.reshape((-1, math.prod(operand.shape[2:])))


def _shared_bytes(problem: AttentionProblem, dtype: Any) -> int:
    """The shared memory that the operands of a block take."""
    config = problem.config
    rows = _owned(problem) + config.stages * config.block_step
    return int(dtype.itemsize * (problem.width + problem.out_width) * rows)


def _model(problem: AttentionProblem) -> AttentionGradientConfig:
    return AttentionGradientConfig(block_step=32 if _shared(problem) else 64)


def _division(problem: AttentionProblem, dtype: Any) -> AttentionGradientConfig:
    """The configuration that was the fastest on this machine's card; the default one if none was measured."""
    found = kept("attention_vjp", problem_parts(problem, dtype))
    return _model(problem) if found is None else AttentionGradientConfig(*found)


def measurement(q: Any, k: Any, causal: bool) -> Listed:
    """The measurement of `attention_vjp`, for values as wide as keys.

    Args:
        q, k: arrays; only their shapes and dtypes are used.
    """
    dtype = dtype_of(q)
    problem, _ = attention_problem(q, k, k, causal, None)
    model = _model(problem)
    configs = [AttentionGradientConfig(64, step, stages) for step in STEPS for stages in STAGES]
    fitting = [each for each in configs if _fits(dataclasses.replace(problem, config=each), dtype)]
    most = problem.of_most(kernel_rows(problem.queries, (problem.width * dtype.itemsize,)))
    queries = pl.ShapeDtypeStruct((problem.heads, most.queries, problem.width), dtype)
    keys = pl.ShapeDtypeStruct((problem.heads // problem.group, most.keys, problem.width), dtype)
    lse = pl.ShapeDtypeStruct(queries.shape[:2], jnp.float32)

    def run(config: AttentionGradientConfig) -> Any:
        return functools.partial(attention_vjp, causal=causal, config=config)

    sizes = most.queries, most.keys, problem.width
    operands = queries, keys, keys, queries, lse, queries
    parts = problem_parts(problem, dtype)
    return Listed("attention_vjp", sizes, operands, run, parts, [*dict.fromkeys([model, *fitting])])


def _fits(problem: AttentionProblem, dtype: Any) -> bool:
    """True if sums, scores, slopes, and both as operands fit into registers, and the buffers into shared memory."""
    config, widths = problem.config, (problem.width, problem.out_width)
    sums = config.block_own * (max(widths) if _shared(problem) else sum(widths))
    scores = 2 * config.block_own * config.block_step
    held = sums + scores + scores * dtype.itemsize // REGISTER_BYTES
    room = CARD.shared_bytes - CARD.shared_alignment
    return held <= HELD * CARD.warpgroup_threads and _shared_bytes(problem, dtype) <= room


def _bucket(problem: AttentionProblem, dtype: Any, interpret: Any, counts: Sequence[int]) -> RowBucket | None:
    """The numbers of queries, and of keys if there are as many, that share kernels; see `attention`.

    Args:
        counts: the rows of each of the last operands for each query.
    """

    def kernel(rows: int) -> Any:
        return counting(lambda present: functools.partial(_gradients, problem.of_most(rows, present), interpret))

    each = {0: 1, 1: 1, 2: 1} if problem.paired else {0: 1}
    widths = problem.width * dtype.itemsize, problem.out_width * dtype.itemsize
    bucket = RowBucket.of(problem.queries, {**each, 3: 1}, widths, kernel)
    rows = {n: (0, count) for n, count in enumerate(counts, 4)}
    return None if bucket is None else bucket.counting(rows, kernel, dict.fromkeys(each, (1, 1)))


def _gradients(problem: AttentionProblem, interpret: Any, *given: Any) -> tuple[Any, Any, Any]:
    """The three launches, of q, k, v and the gradient as `attention` takes them, and of the rows of all heads: of the
    result, of its gradient, and of lse.
    """
    q, k, v, grad, *rows = given
    out, out_grad, lse = rows
    given, dtype = (q, k, v, grad, *_delta(problem, out, out_grad, lse, interpret)), dtype_of(q)
    of_queries, of_keys = (problem.heads, q.shape[1]), (problem.heads // problem.group, v.shape[1])
    (dq,) = _kernel(_queries_kernel, problem, of_queries, [q.shape], dtype, interpret)(*given)
    dk, dv = _kernel(_keys_kernel, problem, of_keys, [k.shape, v.shape], dtype, interpret)(*given)
    return dq, dk, dv


def _require_residuals(given: dict[str, Any], shape: tuple[int, ...], dtype: Any) -> None:
    for argument, value in given.items():
        found = tuple(getattr(value, "shape", ())), getattr(value, "dtype", None)
        if found[0] != shape or found[1] is None or dtype_of(value) != dtype:
            rule, expected = "not of the result of attention", f"{dtype}{list(shape)}"
            got = f"{found[1]}{list(found[0])}"
            raise fail(pl.PalladioValueError, rule, argument=argument, expected=expected, got=got)


def _kernel(
    body: Any,
    problem: AttentionProblem,
    owned: tuple[int, int],
    results: list[tuple[int, ...]],
    dtype: Any,
    interpret: Any,
) -> Any:
    """A launch, a function of q, k, v, the gradient, lse and delta.

    Args:
        owned: heads and rows that blocks own.
        results: the shapes of the results.
    """
    config, widths = problem.config, (problem.width, problem.out_width)
    heads, rows = owned
    owners = 1 if body is _keys_kernel and _shared(problem) else COMPUTE_GROUPS
    step = [pl.ShapeDtypeStruct((config.block_step, width), dtype) for width in widths]
    if body is _keys_kernel:
        step += [pl.ShapeDtypeStruct((1, config.block_step), jnp.float32)] * 2
    scratch = {
        **{f"own_{n}": plgpu.SMEM((owners, config.block_own, w), dtype) for n, w in enumerate(widths)},
        "own_filled": plgpu.Barrier(num_arrivals=2, num_barriers=owners),
        **({"read": plgpu.Barrier(num_arrivals=COMPUTE_GROUPS)} if owners == 1 else {}),
        **ring_scratch("steps", step, config.stages),
    }
    return plgpu.kernel(
        functools.partial(body, problem=problem),
        tuple(pl.ShapeDtypeStruct(tuple(shape), dtype) for shape in results),
        scratch_types=scratch,
        grid=(heads, pl.cdiv(rows, owners * config.block_own)),
        grid_names=("head", "block"),
        num_threads=COMPUTE_GROUPS + 1,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
        name=f"attention{body.__name__.removesuffix('_kernel')}_gradient",
    )


DELTA_ROWS = 64
"""The rows of a block of `_delta_kernel`."""


def _delta_kernel(out: Ref, grad: Ref, lse: Ref, known: Ref, delta: Ref, *, problem: AttentionProblem) -> None:
    """One block: the sum of each of its rows of `out * grad`, and their lse, infinite past the last row."""
    head, first = pl.axis_index("head"), pl.axis_index("block") * DELTA_ROWS
    number = first + jnp.arange(DELTA_ROWS)
    own, rows = pl.ds(head * problem.present_queries + first, DELTA_ROWS), pl.ds(first, DELTA_ROWS)
    width = problem.out_width
    present, inside = number < problem.present_queries, number < problem.queries
    each = jnp.broadcast_to(present[:, None], (DELTA_ROWS, width))

    def load(ref: Ref) -> Value:
        heads = ref.shape[1] // width
        if heads == 1:
            part = ref.at[own]
        else:
            row = head // heads * problem.present_queries + first
            part = ref.at[pl.ds(row, DELTA_ROWS), pl.ds(pl.multiple_of(head % heads * width, width), width)]
        return plgpu.load(part, mask=each, other=0.0).astype(jnp.float32)

    loaded = [load(ref) for ref in (out, grad)]
    plgpu.store(delta.at[head, rows], jnp.sum(loaded[0] * loaded[1], axis=1), mask=inside)
    plgpu.store(known.at[head, rows], plgpu.load(lse.at[own], mask=present, other=jnp.inf), mask=inside)


def _delta(problem: AttentionProblem, out: Any, grad: Any, lse: Any, interpret: Any) -> tuple[Any, Any]:
    """`lse` and the sum of each row of `out * grad`, both f32[heads, m], from the rows of all heads."""
    wanted = pl.ShapeDtypeStruct((problem.heads, problem.queries), jnp.float32)
    call = plgpu.kernel(
        functools.partial(_delta_kernel, problem=problem),
        (wanted, wanted),
        grid=(problem.heads, pl.cdiv(problem.queries, DELTA_ROWS)),
        grid_names=("head", "block"),
        interpret=interpret,
        name="attention_delta",
    )
    known, delta = call(out, grad, lse)
    return known, delta
