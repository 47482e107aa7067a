"""Attention: two compute warpgroups that alternate on the tensor cores, and a memory warpgroup for keys and values.

While one compute warpgroup multiplies, the other computes exponentials: they pass the turn at a barrier ("ping-pong";
Shah et al., "FlashAttention-3", 2024). Keys and values pass through two rings of buffers; scores are not stored, but
the running sums are rescaled (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.library.card_calls import attention_key
from palladio.library.checks import dtype_of, fail, heads_together, require_array, require_flag, require_number
from palladio.library.hopper.kept import Divided, RowBucket, called, counting, keeps, kept_call, kernel_rows, staged
from palladio.library.hopper.limits import (
    CARD,
    COMPUTE_GROUPS,
    COMPUTE_REGISTERS,
    MEMORY_GROUP,
    MEMORY_REGISTERS,
    require_config,
    require_operand,
    require_shared,
)
from palladio.library.hopper.ring import Ring, ring_scratch
from palladio.library.hopper.tuned import Listed, kept
from palladio.library.staging import stored, tokens_first, zeros

Ref = Any
Value = Any

BLOCKS, STAGES = (64, 80, 96, 112, 128, 144, 160, 176), (2, 3, 4)
"""Keys of a step, and numbers of stages, that `measurement` tries."""

HELD, REGISTER_BYTES = 200, 4
"""The most registers of a thread that hold scores, weights and the result."""


@pl.checked_call
@dataclass(frozen=True)
class AttentionConfig:
    """The division of a block's work.

    Args:
        block_q: queries of each of the two compute warpgroups; on the device a multiple of 64.
        block_kv: keys and values of one step; on the device a multiple of 16.
        stages: the number of steps whose keys and values are buffered in shared memory.

    By default a step is 128 keys, and 80 if heads are wider than 128: accumulators of 64 by 256, and two stages of keys
    and values, leave no registers and shared memory for more.
    """

    block_q: int = 64
    block_kv: int = 128
    stages: int = 2


@dataclass(frozen=True)
class AttentionProblem:
    """The problem of a kernel: `q[heads, queries, width]`, `k[heads / group, keys, width]`, `v[..., keys, out_width]`.

    An operand with four axes has tokens before heads, as in `of_kernel`.

    Fields:
        group: the number of heads of queries that share a head of keys and values.
        residuals: True if the logarithms of the sums of weights are a second result.
        paired: True if there are as many keys as queries.
        present: the number of queries that there are, i32[], at most `queries`; None for all. If they are `paired`,
            there are as many keys.
        batch_heads: the heads of queries of a batch, if the result has tokens before heads; else None.
    """

    heads: int
    group: int
    queries: int
    keys: int
    width: int
    out_width: int
    causal: bool
    scale: float
    config: Any
    residuals: bool = False
    paired: bool = False
    present: Value | None = None
    batch_heads: int | None = None

    def of_most(self, rows: int, present: Value | None = None) -> AttentionProblem:
        """The problem of other numbers of queries, at most `rows`."""
        keys = rows if self.paired else self.keys
        return dataclasses.replace(self, queries=rows, keys=keys, present=present)

    @property
    def present_queries(self) -> Value:
        """The number of queries that there are."""
        return self.queries if self.present is None else self.present

    @property
    def present_keys(self) -> Value:
        """The number of keys that there are."""
        return self.present if self.paired and self.present is not None else self.keys

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return COMPUTE_GROUPS * int(self.config.block_q)

    def shared_bytes(self, dtype: Any) -> int:
        """The shared memory of a block."""
        both, widest = self.width + self.out_width, max(self.width, self.out_width)
        return int(dtype.itemsize * (self.rows * widest + self.config.stages * self.config.block_kv * both))

    @property
    def grid(self) -> tuple[int, int]:
        return self.heads, pl.cdiv(self.queries, self.rows)

    def steps(self, first_row: Value) -> Value:
        """The number of blocks of keys for the block of queries from `first_row`."""
        steps = _cdiv(self.present_keys, self.config.block_kv)
        return jnp.minimum(steps, _cdiv(first_row + self.rows, self.config.block_kv)) if self.causal else steps

    def unmasked_steps(self, first_row: Value) -> Value:
        """The number of blocks of keys without a mask, for a warpgroup's queries from `first_row`."""
        whole = self.present_keys // self.config.block_kv
        return jnp.minimum(whole, (first_row + 1) // self.config.block_kv) if self.causal else whole


def _cdiv(x: Value, y: int) -> Value:
    return (x + (y - 1)) // y


def _attention_kernel(q: Ref, k: Ref, v: Ref, out: Ref, *lse: Ref, problem: AttentionProblem, **scratch: Ref) -> None:
    """One block: `COMPUTE_GROUPS` times `block_q` queries of one head."""
    config = problem.config
    keys, values = (Ring.of(scratch, name) for name in ("keys", "values"))
    queries, queries_filled, turns = scratch["queries"], scratch["queries_filled"], scratch["turns"]
    group = pl.axis_index("warpgroup")
    head, block = pl.axis_index("head"), pl.axis_index("block")
    if problem.causal:
        # The last queries attend to the most keys: they start first, and the shortest blocks fill the gaps at the end.
        block = problem.grid[1] - 1 - block
    first_row = block * problem.rows
    steps = problem.steps(first_row)

    @pl.when(group == MEMORY_GROUP)
    def _() -> None:
        plgpu.set_max_registers(MEMORY_REGISTERS, action="decrease")
        for each in range(COMPUTE_GROUPS):
            rows = pl.ds(first_row + each * config.block_q, config.block_q)
            wanted = queries.at[each, :, : problem.width]
            plgpu.copy_gmem_to_smem(rows_of(q, head, rows), wanted, queries_filled.at[each])

        def fill(ring: Ring, source: Ref, step: Value) -> None:
            rows = pl.ds(step * config.block_kv, config.block_kv)
            ring.fill(step, rows_of(source, head // problem.group, rows))

        # In the order in which they are read: the values of a step after the keys of the next one.
        @pl.loop(0, steps + 1)
        def _(step: Value) -> None:
            pl.when(step < steps)(lambda: fill(keys, k, step))
            pl.when(step > 0)(lambda: fill(values, v, step - 1))

        keys.await_drained(steps)
        values.await_drained(steps)

    @pl.when(group < COMPUTE_GROUPS)
    def _() -> None:
        plgpu.set_max_registers(COMPUTE_REGISTERS, action="increase")
        own = queries.at[group]
        own_row = first_row + group * config.block_q
        plgpu.barrier_wait(queries_filled.at[group])
        # The first warpgroup has the first turn, and observes at the end that the second one has had its last turn. As
        # loops of 0 or 1 steps, and not as branches on the warpgroup, they leave both warpgroups the same code.
        pl.loop(0, group)(lambda _: plgpu.barrier_arrive(turns.at[0]))
        result, logarithm = _attend(problem, own.at[:, : problem.width], keys, values, turns, own_row, steps)
        # The queries have been read: their buffer is reused for the result.
        staged = own.at[:, : problem.out_width]
        staged[...] = result.astype(staged.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(staged, rows_of(out, head, pl.ds(own_row, config.block_q)))
        if lse:
            count = problem.present_queries
            inside = own_row + jnp.arange(config.block_q) < count
            plgpu.store(lse[0].at[pl.ds(head * count + own_row, config.block_q)], logarithm, mask=inside)
        pl.loop(group, 1)(lambda _: plgpu.barrier_wait(turns.at[0]))
        plgpu.wait_smem_to_gmem(0)


def _attend(
    problem: AttentionProblem, queries: Ref, keys: Ring, values: Ring, turns: Ref, first_row: Value, steps: Value
) -> tuple[Value, Value]:
    """f32[block_q, out_width]: the attention of one warpgroup's queries to all unmasked keys.

    Also the logarithm of the sum of their weights, f32[block_q].

    A turn issues the scores of a step and, after them, the product of the weights and values of the step before. While
    the second product is in flight, and the other warpgroup has its turn, the exponentials of the scores are computed.
    """
    # A positive factor keeps the order of the scores: it is applied after the maximum, in one instruction with the
    # subtraction. One that is not positive is applied first.
    factor = problem.scale * math.log2(math.e)
    early, late = (1.0, factor) if factor > 0 else (factor, 1.0)
    group = pl.axis_index("warpgroup")

    def softmax(scores: Value, masked: bool, step: Value, before: Value, total: Value) -> tuple[Value, ...]:
        """The weights of a step's scores, the largest score, the sum of weights, and the factor of earlier weights."""
        scores = scores * early
        if masked:
            scores = masked_scores(problem, scores, first_row, step * problem.config.block_kv)
        largest = jnp.maximum(before, jnp.max(scores, axis=1))
        shrink = jnp.exp2((before - largest) * late)
        weights = jnp.exp2(scores * late - (largest * late)[:, None])
        total = total * shrink + jnp.sum(weights, axis=1)
        return weights.astype(queries.dtype), largest, total, shrink

    def scoped(weighted: Ref) -> tuple[Value, Value]:
        def attend(masked: bool, step: Value, carry: tuple[Value, ...]) -> tuple[Value, ...]:
            rounded, before, total = carry

            def multiply(acc: Ref) -> tuple[Value, ...]:
                (key_block,), (value_block,) = keys.take(step), values.take(step - 1)
                plgpu.wgmma(acc, queries, key_block.T)
                plgpu.wgmma(weighted, rounded, value_block)
                plgpu.barrier_arrive(turns.at[1 - group])
                scores = plgpu.wgmma_accumulator_load(acc, wait_n=1)
                keys.give_back(step)
                return softmax(scores, masked, step, before, total)

            weights, largest, total, shrink = pl.run_scoped(multiply, plgpu.ACC(rounded.shape))
            # The turn first: ptxas moves a wait for products forward, but not over a loop that waits for a barrier. But
            # with one stage, the other warpgroup keeps the turn until this one has given the values back.
            if values.stages > 1:
                plgpu.barrier_wait(turns.at[group])
            plgpu.wgmma_wait(0)
            values.give_back(step - 1)
            if values.stages == 1:
                plgpu.barrier_wait(turns.at[group])
            weighted[...] = weighted[...] * shrink[:, None]
            return weights, largest, total

        start = jnp.full((queries.shape[0],), -jnp.inf, jnp.float32), jnp.zeros((queries.shape[0],), jnp.float32)
        first = softmax(_first_scores(queries, keys), True, 0, *start)[:3]
        plgpu.barrier_wait(turns.at[group])
        unmasked = jnp.maximum(1, jnp.minimum(steps, problem.unmasked_steps(first_row)))
        carry = lax.fori_loop(1, unmasked, functools.partial(attend, False), first)
        weights, largest, total = lax.fori_loop(unmasked, steps, functools.partial(attend, True), carry)
        (block,) = values.take(steps - 1)
        plgpu.wgmma(weighted, weights, block)
        plgpu.barrier_arrive(turns.at[1 - group])
        plgpu.wgmma_wait(0)
        values.give_back(steps - 1)
        return weighted[...] * (1 / total)[:, None], (largest * late + jnp.log2(total)) * math.log(2)

    result, logarithm = pl.run_scoped(scoped, plgpu.ACC((queries.shape[0], problem.out_width)))
    return result, logarithm


def _first_scores(queries: Ref, keys: Ring) -> Value:
    """f32[block_q, block_kv]: the products of a warpgroup's queries with the keys of the first step."""

    def multiply(acc: Ref) -> Value:
        (block,) = keys.take(0)
        plgpu.wgmma(acc, queries, block.T)
        plgpu.wgmma_wait(0)
        keys.give_back(0)
        return acc[...]

    return pl.run_scoped(multiply, plgpu.ACC((queries.shape[0], keys.buffers[0].shape[1])))


def masked_scores(
    problem: AttentionProblem, scores: Value, first_row: Value, first_column: Value, transposed: bool = False
) -> Value:
    """The scores, with -inf for masked keys. Key 0 is never masked.

    Args:
        scores: f32[queries, keys], or with `transposed` f32[keys, queries].
    """
    queries, keys = (1, 0) if transposed else (0, 1)
    column = first_column + lax.broadcasted_iota(jnp.int32, scores.shape, keys)
    seen = column < problem.present_keys
    if problem.causal:
        seen &= column <= first_row + lax.broadcasted_iota(jnp.int32, scores.shape, queries)
    return jnp.where(seen, scores, -jnp.inf)


@pl.checked_call
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    config: AttentionConfig | None = None,
    save_residuals: bool = False,
    interpret: Any = None,
    out: Any = None,
) -> Any:
    """`softmax(q k^T * scale) v` for each head, in memory that does not grow with the number of scores.

    Args:
        q: `dtype[..., m, d]`, float16, bfloat16 or float32: m queries.
        k: `dtype[..., n, d]`: n keys, at least one, with the same leading axes. The last of these, the heads, may
            divide those of q: then consecutive heads of queries share a head of keys and values.
        v: `dtype[..., n, e]`: a value for each key. Each operand is read in place if it is in row-major order, and also
            if it is the view `x.transpose(-3, -2)` of a tensor of PyTorch `[..., tokens, heads, depth]` in that order.
            Others are copied.
        causal: True if query i attends to keys 0 to i only.
        scale: the factor of the products; `1/sqrt(d)` by default.
        config: the division of a block's work. Its blocks need not divide m and n.
        save_residuals: True to return the logarithms of the sums of weights too, for `attention_vjp`.
        interpret: as in `palladio.gpu.kernel`.
        out: an array for the result, of its shape and dtype, in row-major order; it is returned. Not allowed with
            `save_residuals`.

    Returns:
        `dtype[..., m, e]`. Scores and sums are in float32; the weights are rounded to the dtype of `v` before the
        product. If q is such a view, so is the result: its `transpose(-3, -2)` is in row-major order. With
        `save_residuals` a pair: this, and `f32[..., m]`, `log(sum(exp(q k^T * scale)))`.

    Raises:
        PalladioTypeError: dtypes that the tensor cores do not multiply, or that differ; an invalid configuration.
        PalladioValueError: shapes that do not match, no keys, a configuration that does not fit into a block.
    """
    causal, save_residuals = require_flag(causal, "causal"), require_flag(save_residuals, "save_residuals")
    key = attention_key(causal, scale, config, out)
    known = None if save_residuals else kept_call(key, interpret, (q, k, v), out)
    if known is not None:
        return known
    problem, lead = attention_problem(q, k, v, causal, scale)
    m, e, dtype = problem.queries, problem.out_width, dtype_of(q)
    config = require_config(_division(problem, dtype) if config is None else config, AttentionConfig)
    problem = dataclasses.replace(problem, config=config, residuals=save_residuals)
    require_shared(problem.shared_bytes(dtype))
    if save_residuals and out is not None:
        rule = "there is no array for the logarithms of the sums"
        raise fail(pl.PalladioValueError, rule, argument="out", expected="None with save_residuals=True")
    shape = (*lead, m, e)
    if 0 in (problem.heads, m, e):
        empty = zeros(shape, dtype, q, k, v)
        return (empty, zeros((*lead, m), jnp.float32, q, k, v)) if save_residuals else stored(empty, out)
    operands = tuple(map(of_kernel, (q, k, v)))
    # The result is as the queries are, so that a model joins its heads without a copy. An array of the caller is dense.
    batch_heads = lead[-1] if is_tokens_first(operands[0]) and out is None else None
    problem = dataclasses.replace(problem, batch_heads=batch_heads)
    bucket = _bucket(problem, dtype, interpret)

    def kernel() -> Any:
        return Divided(_kernel(problem, dtype, interpret), config)

    made_of = "attention", causal, scale, config, batch_heads is not None
    if save_residuals:
        run = staged((made_of, "residuals"), kernel, interpret, operands, bucket) if keeps(operands) else kernel()
        result, logarithms = run(*operands)
        return as_heads(result, shape), logarithms.reshape((*lead, m))
    seen: dict[str, Any] = {"operands": operands, "bucket": bucket, "made_of": made_of}
    if batch_heads is None:
        seen["flat"] = (problem.heads, m, e)
    else:
        seen["view"] = lambda result: as_heads(result, shape), heads_strides(shape)
    return called(key, kernel, interpret, (q, k, v), shape, out, **seen)


def _bucket(problem: AttentionProblem, dtype: Any, interpret: Any) -> RowBucket | None:
    """The numbers of queries that share a kernel.

    With a causal mask and as many keys, the keys past the last are past every query. Without a mask the kernel takes
    their number. A number of keys that is not that of the queries is compiled into the kernel.
    """
    operands = {0: 1, 1: 1, 2: 1} if problem.paired else {0: 1}

    def kernel(rows: int) -> Any:
        return Divided(_kernel(problem.of_most(rows), dtype, interpret), problem.config)

    def of_some(rows: int) -> Any:
        run = counting(lambda present: _kernel(problem.of_most(rows, present), dtype, interpret))
        return Divided(run, problem.config)

    bucket = RowBucket.of(problem.queries, operands, _widths(problem, dtype), kernel, result=1)
    if bucket is None or not (problem.residuals or (problem.paired and not problem.causal)):
        return bucket
    return bucket.counting({}, of_some, {1: (0, problem.heads)} if problem.residuals else {})


def _widths(problem: AttentionProblem, dtype: Any) -> tuple[int, int]:
    return problem.width * dtype.itemsize, problem.out_width * dtype.itemsize


def _model(problem: AttentionProblem) -> AttentionConfig:
    return AttentionConfig(block_kv=80 if max(problem.width, problem.out_width) > 128 else 128)


def _division(problem: AttentionProblem, dtype: Any) -> AttentionConfig:
    """The configuration that was the fastest on this machine's card; the default one if none was measured."""
    found = kept("attention", problem_parts(problem, dtype))
    return _model(problem) if found is None else AttentionConfig(*found)


def problem_parts(problem: AttentionProblem, dtype: Any) -> tuple[int | str, ...]:
    """A problem, as in `tuned.kept`."""
    most = problem.of_most(kernel_rows(problem.queries, _widths(problem, dtype)))
    sizes = most.heads, most.group, most.queries, most.keys, most.width, most.out_width
    return *sizes, int(most.causal), str(dtype)


def measurement(q: Any, k: Any, causal: bool) -> Listed:
    """The measurement of `attention`, for values as wide as keys.

    Args:
        q, k: arrays; only their shapes and dtypes are used.
    """
    dtype = dtype_of(q)
    problem, _ = attention_problem(q, k, k, causal, None)
    model = _model(problem)
    configs = [AttentionConfig(64, block, stages) for block in BLOCKS for stages in STAGES]
    fitting = [each for each in configs if _fits(dataclasses.replace(problem, config=each), dtype)]
    most = problem.of_most(kernel_rows(problem.queries, _widths(problem, dtype)))
    kv_heads = problem.heads // problem.group
    shapes = [(problem.heads, most.queries), *[(kv_heads, most.keys)] * 2]
    operands = [pl.ShapeDtypeStruct((*shape, problem.width), dtype) for shape in shapes]

    def run(config: AttentionConfig) -> Any:
        return lambda q, k, v: attention(q, k, v, causal=causal, config=config)

    sizes = most.queries, most.keys, problem.width
    return Listed("attention", sizes, operands, run, problem_parts(problem, dtype), [*dict.fromkeys([model, *fitting])])


def _fits(problem: AttentionProblem, dtype: Any) -> bool:
    """True if the scores, the weights and the result fit into registers, and the buffers into shared memory."""
    config = problem.config
    held = config.block_q * (config.block_kv + problem.out_width)
    weights = config.block_q * config.block_kv * dtype.itemsize // REGISTER_BYTES
    shared = problem.shared_bytes(dtype) + CARD.shared_alignment <= CARD.shared_bytes
    return shared and held + weights <= HELD * CARD.warpgroup_threads


def attention_problem(
    q: Any, k: Any, v: Any, causal: bool, scale: float | None
) -> tuple[AttentionProblem, tuple[int, ...]]:
    """The problem of these arrays without a configuration, and the leading axes of the queries."""
    (*lead, m, d), (*k_lead, n, d_k), (*v_lead, n_v, e) = (
        _shape(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v"))
    )
    group = heads_together((*lead, m, d), (*k_lead, n, d_k))
    if v_lead != k_lead or n_v != n:
        wanted, rule = str((*k_lead, n, "e")), "not one value for each key"
        raise fail(pl.PalladioValueError, rule, argument="v", expected=wanted, got=tuple(v.shape))
    require_operand(q, "q")
    require_operand(k, "k", like=q)
    require_operand(v, "v", like=q)
    factor = d**-0.5 if scale is None else require_number(scale, "scale")
    return AttentionProblem(math.prod(lead), group, m, n, d, e, bool(causal), factor, None, paired=m == n), tuple(lead)


def _shape(value: Any, argument: str) -> tuple[int, ...]:
    shape = require_array(value, argument, None, "[..., n, d]")
    if len(shape) < 2:
        raise fail(pl.PalladioValueError, "attention needs at least two axes", argument=argument, got=shape)
    return shape


def of_kernel(x: Any) -> Any:
    """The operand that a kernel takes for `x`, `[..., heads, tokens, depth]`, in the same memory if it is dense.

    It is `[batches, tokens, heads, depth]` for a view of a tensor that has tokens first, else `[heads, tokens, depth]`
    with the heads of all batches.
    """
    turned = tokens_first(x)
    if turned is not None:
        return turned.reshape((-1, *turned.shape[-3:]))
    return x if len(x.shape) == 3 else x.reshape((-1, *x.shape[-2:]))


def is_tokens_first(operand: Any) -> bool:
    """True for an operand of a kernel, or a reference to it, that has tokens first."""
    return len(operand.shape) == 4


def result_shape(heads: int, rows: int, width: int, batch_heads: int | None) -> tuple[int, ...]:
    """The shape of a result of a kernel.

    Args:
        heads: the heads of all batches.
        batch_heads: the heads of a batch, for a result that has tokens first.
    """
    return (heads, rows, width) if batch_heads is None else (heads // batch_heads, rows, batch_heads, width)


def as_heads(result: Any, shape: tuple[int, ...]) -> Any:
    """The result of a kernel as `[..., heads, tokens, depth]`, in the same memory."""
    if not is_tokens_first(result):
        return result.reshape(shape)
    *lead, heads, rows, width = shape
    return result.reshape((*lead, rows, heads, width)).transpose(-3, -2)


def heads_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of `[..., heads, tokens, depth]`, in elements, in memory that has tokens first."""
    *lead, heads, rows, width = shape
    before = [math.prod(shape[axis + 1 :]) for axis in range(len(lead))]
    return (*before, width, heads * width, 1)


def rows_of(ref: Ref, head: Value, rows: Value) -> Ref:
    """Some rows of a head, among the heads of all batches, in an operand or a result of a kernel."""
    if not is_tokens_first(ref):
        return ref.at[head, rows]
    batches, _, heads, _ = ref.shape
    return ref.at[0, rows, head] if batches == 1 else ref.at[head // heads, rows, head % heads]


def _kernel(problem: AttentionProblem, dtype: Any, interpret: Any) -> Any:
    """The launch, a function of `q`, `k` and `v`."""
    config = problem.config
    scratch = {
        "queries": plgpu.SMEM((COMPUTE_GROUPS, config.block_q, max(problem.width, problem.out_width)), dtype),
        "queries_filled": plgpu.Barrier(num_barriers=COMPUTE_GROUPS),
        "turns": plgpu.Barrier(num_barriers=COMPUTE_GROUPS),
        **ring_scratch("keys", [pl.ShapeDtypeStruct((config.block_kv, problem.width), dtype)], config.stages),
        **ring_scratch("values", [pl.ShapeDtypeStruct((config.block_kv, problem.out_width), dtype)], config.stages),
    }
    shape = result_shape(problem.heads, problem.queries, problem.out_width, problem.batch_heads)
    out = pl.ShapeDtypeStruct(shape, dtype)
    return plgpu.kernel(
        functools.partial(_attention_kernel, problem=problem),
        (out, pl.ShapeDtypeStruct((problem.heads * problem.queries,), jnp.float32)) if problem.residuals else out,
        scratch_types=scratch,
        grid=problem.grid,
        grid_names=("head", "block"),
        num_threads=COMPUTE_GROUPS + 1,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
        name="attention",
    )
