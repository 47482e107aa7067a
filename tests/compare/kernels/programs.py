"""Whole kernels as people write them."""

import functools
import math

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def case_softmax(rng):
    def kernel(x_ref, o_ref):
        x = x_ref[...]
        e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
        o_ref[...] = e / jnp.sum(e, axis=-1, keepdims=True)

    x = rng.normal(size=(16, 64)).astype(np.float32) * 5
    spec = pl.BlockSpec((4, 64), lambda i: (i, 0))
    return pl.pallas_call(
        kernel, ShapeDtypeStruct(x.shape, x.dtype), grid=(4,), in_specs=[spec], out_specs=spec, interpret=True
    )(x)


def case_online_softmax_over_blocks(rng):
    """Two passes over the columns: the running maximum and sum, then the values."""

    def kernel(x_ref, o_ref, largest_ref, total_ref):
        phase, j = pl.program_id(1), pl.program_id(2)

        @pl.when((phase == 0) & (j == 0))
        def _():
            largest_ref[...] = jnp.full_like(largest_ref, -jnp.inf)
            total_ref[...] = jnp.zeros_like(total_ref)

        @pl.when(phase == 0)
        def _():
            largest = jnp.maximum(largest_ref[...], jnp.max(x_ref[...], axis=1, keepdims=True))
            shrink = jnp.exp(largest_ref[...] - largest)
            total_ref[...] = total_ref[...] * shrink + jnp.sum(jnp.exp(x_ref[...] - largest), axis=1, keepdims=True)
            largest_ref[...] = largest

        @pl.when(phase == 1)
        def _():
            o_ref[...] = jnp.exp(x_ref[...] - largest_ref[...]) / total_ref[...]

    x = rng.normal(size=(8, 48)).astype(np.float32) * 5
    spec = pl.BlockSpec((4, 16), lambda i, phase, j: (i, j))
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2, 2, 3),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((4, 1), jnp.float32)] * 2,
        interpret=True,
    )(x)


def case_layer_norm(rng):
    def kernel(x_ref, gain_ref, bias_ref, o_ref, *, epsilon):
        x = x_ref[...].astype(jnp.float32)
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        normal = centred * lax.rsqrt(variance + epsilon)
        o_ref[...] = (normal * gain_ref[...] + bias_ref[...]).astype(o_ref.dtype)

    x = rng.normal(size=(16, 32)).astype(ml_dtypes.bfloat16)
    gain, bias = rng.normal(size=(2, 32)).astype(np.float32)
    rows, vector = pl.BlockSpec((4, 32), lambda i: (i, 0)), pl.BlockSpec((32,), lambda i: (0,))
    return pl.pallas_call(
        functools.partial(kernel, epsilon=1e-5),
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(4,),
        in_specs=[rows, vector, vector],
        out_specs=rows,
        interpret=True,
    )(x, gain, bias)


def case_root_mean_square_norm(rng):
    def kernel(x_ref, gain_ref, o_ref):
        x = x_ref[...]
        o_ref[...] = x / jnp.sqrt(jnp.mean(jnp.square(x)) + 1e-6) * gain_ref[...]

    x, gain = rng.normal(size=(8, 32)).astype(np.float32), rng.normal(size=(32,)).astype(np.float32)
    row = pl.BlockSpec((None, 32), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(8,),
        in_specs=[row, pl.BlockSpec((32,), lambda i: (0,))],
        out_specs=row,
        interpret=True,
    )(x, gain)


def matmul(x, y, *, tile, out_dtype, epilogue=lambda acc: acc, bias=None):
    """`x @ y` tile by tile: partial sums in scratch, an epilogue on the last step."""
    m, k, n = tile
    steps = pl.cdiv(x.shape[1], k)

    def kernel(x_ref, y_ref, *refs):
        *bias_ref, o_ref, acc_ref = refs

        @pl.when(pl.program_id(2) == 0)
        def _():
            acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == steps - 1)
        def _():
            acc = acc_ref[...] + bias_ref[0][...] if bias_ref else acc_ref[...]
            o_ref[...] = epilogue(acc).astype(o_ref.dtype)

    in_specs = [pl.BlockSpec((m, k), lambda i, j, s: (i, s)), pl.BlockSpec((k, n), lambda i, j, s: (s, j))]
    operands = [x, y]
    if bias is not None:
        in_specs.append(pl.BlockSpec((1, n), lambda i, j, s: (0, j)))
        operands.append(bias)
    return pl.pallas_call(
        kernel,
        out_shape=ShapeDtypeStruct((x.shape[0], y.shape[1]), out_dtype),
        grid=(pl.cdiv(x.shape[0], m), pl.cdiv(y.shape[1], n), steps),
        in_specs=in_specs,
        out_specs=pl.BlockSpec((m, n), lambda i, j, s: (i, j)),
        scratch_shapes=[pltpu.VMEM((m, n), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        interpret=True,
    )(*operands)


def case_tiled_matmul(rng):
    x, y = rng.normal(size=(32, 48)).astype(np.float32), rng.normal(size=(48, 32)).astype(np.float32)
    return matmul(x, y, tile=(16, 16, 16), out_dtype=np.float32)


def case_tiled_matmul_of_bfloat16(rng):
    x, y = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in [(32, 48), (48, 32)])
    return matmul(x, y, tile=(16, 16, 16), out_dtype=ml_dtypes.bfloat16), matmul(
        x, y, tile=(8, 48, 32), out_dtype=np.float32
    )


def case_tiled_matmul_with_bias_and_relu(rng):
    x, y = rng.normal(size=(16, 32)).astype(np.float32), rng.normal(size=(32, 24)).astype(np.float32)
    bias = rng.normal(size=(1, 24)).astype(np.float32)
    return matmul(x, y, tile=(8, 16, 8), out_dtype=np.float16, epilogue=lambda acc: jnp.maximum(acc, 0), bias=bias)


def case_tiled_matmul_with_ragged_rows_and_columns(rng):
    x, y = rng.normal(size=(19, 32)).astype(np.float32), rng.normal(size=(32, 21)).astype(np.float32)
    return matmul(x, y, tile=(8, 16, 16), out_dtype=np.float32, epilogue=lambda acc: acc * lax.logistic(acc))


def case_quantised_matmul(rng):
    """int8 weights with a scale for each column."""

    def kernel(x_ref, weights_ref, scale_ref, o_ref):
        weights = weights_ref[...].astype(jnp.bfloat16)
        o_ref[...] = jnp.dot(x_ref[...], weights, preferred_element_type=jnp.float32) * scale_ref[...]

    x = rng.normal(size=(16, 32)).astype(ml_dtypes.bfloat16)
    weights, scale = rng.integers(-127, 128, (32, 24)).astype(np.int8), rng.uniform(0, 0.1, (1, 24)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct((16, 24), np.float32),
        grid=(2, 3),
        in_specs=[
            pl.BlockSpec((8, 32), lambda i, j: (i, 0)),
            pl.BlockSpec((32, 8), lambda i, j: (0, j)),
            pl.BlockSpec((1, 8), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((8, 8), lambda i, j: (i, j)),
        interpret=True,
    )(x, weights, scale)


def attention(q, k, v, *, causal, block_q=8, block_k=8):
    """Attention that never holds the scores of more than one block."""
    heads, length, width = q.shape
    steps = k.shape[1] // block_k

    def kernel(q_ref, k_ref, v_ref, o_ref):
        i = pl.program_id(1)
        queries = q_ref[...].astype(jnp.float32) / math.sqrt(width)

        def step(j, state):
            largest, total, acc = state
            keys, values = k_ref[pl.ds(j * block_k, block_k), :], v_ref[pl.ds(j * block_k, block_k), :]
            scores = jnp.dot(queries, keys.astype(jnp.float32).T)
            if causal:
                rows = i * block_q + lax.broadcasted_iota(jnp.int32, scores.shape, 0)
                columns = j * block_k + lax.broadcasted_iota(jnp.int32, scores.shape, 1)
                scores = jnp.where(columns <= rows, scores, -1e30)
            new_largest = jnp.maximum(largest, scores.max(axis=1))
            weights = jnp.exp(scores - new_largest[:, None])
            shrink = jnp.exp(largest - new_largest)
            acc = acc * shrink[:, None] + jnp.dot(
                weights.astype(values.dtype), values, preferred_element_type=jnp.float32
            )
            return new_largest, total * shrink + weights.sum(axis=1), acc

        start = (jnp.full((block_q,), -jnp.inf), jnp.zeros((block_q,)), jnp.zeros((block_q, width)))
        last = lax.div((i + 1) * block_q + block_k - 1, block_k) if causal else steps
        _, total, acc = lax.fori_loop(0, last, step, start)
        o_ref[...] = (acc / total[:, None]).astype(o_ref.dtype)

    rows = pl.BlockSpec((None, block_q, width), lambda h, i: (h, i, 0))
    whole = pl.BlockSpec((None, k.shape[1], width), lambda h, i: (h, 0, 0))
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(q.shape, q.dtype),
        grid=(heads, length // block_q),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        interpret=True,
    )(q, k, v)


def case_attention(rng):
    q, k, v = rng.normal(size=(3, 2, 32, 16)).astype(np.float32)
    return attention(q, k, v, causal=False)


def case_causal_attention(rng):
    q, k, v = rng.normal(size=(3, 2, 32, 16)).astype(np.float32)
    return attention(q, k, v, causal=True), attention(q, k, v, causal=True, block_k=16)


def case_attention_of_bfloat16(rng):
    q, k, v = rng.normal(size=(3, 2, 16, 16)).astype(ml_dtypes.bfloat16)
    return attention(q, k, v, causal=True)


def case_histogram(rng):
    def kernel(x_ref, o_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        bins = lax.broadcasted_iota(jnp.int32, (32, 10), 1)
        o_ref[...] += jnp.sum((x_ref[...][:, None] == bins).astype(jnp.int32), axis=0)

    x = rng.integers(0, 10, (96,)).astype(np.int32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct((10,), np.int32),
        grid=(3,),
        in_specs=[pl.BlockSpec((32,), lambda i: (i,))],
        out_specs=pl.BlockSpec((10,), lambda i: (0,)),
        interpret=True,
    )(x)


def case_histogram_by_scattered_increments(rng):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)

        @pl.loop(0, 64)
        def _(i):
            o_ref[x_ref[i]] += 1

    x = rng.integers(0, 10, (64,)).astype(np.int32)
    return pl.pallas_call(kernel, ShapeDtypeStruct((10,), np.int32), interpret=True)(x)


def case_prefix_sum_across_blocks(rng):
    def kernel(x_ref, o_ref, carry_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            carry_ref[0] = 0

        running = jnp.cumsum(x_ref[...]) + carry_ref[0]
        o_ref[...] = running
        carry_ref[0] = running[-1]

    x = rng.integers(-50, 50, (64,)).astype(np.int32)
    spec = pl.BlockSpec((16,), lambda i: (i,))
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(4,),
        in_specs=[spec],
        out_specs=spec,
        scratch_shapes=[pltpu.SMEM((1,), jnp.int32)],
        interpret=True,
    )(x)


def case_linear_recurrence(rng):
    """h = a * h + x over time, the state kept in scratch from block to block."""

    def kernel(a_ref, x_ref, o_ref, state_ref):
        @pl.when(pl.program_id(1) == 0)
        def _():
            state_ref[...] = jnp.zeros_like(state_ref)

        @pl.loop(0, 8, init_carry=state_ref[...])
        def state(t, h):
            h = a_ref[t] * h + x_ref[t]
            o_ref[t] = h
            return h

        state_ref[...] = state

    a, x = rng.uniform(0, 1, (32, 16)).astype(np.float32), rng.normal(size=(32, 16)).astype(np.float32)
    spec = pl.BlockSpec((8, 8), lambda c, t: (t, c))
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2, 4),
        in_specs=[spec, spec],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((8,), jnp.float32)],
        interpret=True,
    )(a, x)


def case_five_point_stencil(rng):
    """Heat on a plate: a halo of one on each side, zero outside, several steps."""

    def kernel(x_ref, o_ref, *, shape, tile):
        i, j = pl.program_id(0), pl.program_id(1)
        rows = i * tile - 1 + lax.broadcasted_iota(jnp.int32, x_ref.shape, 0)
        columns = j * tile - 1 + lax.broadcasted_iota(jnp.int32, x_ref.shape, 1)
        inside = (rows >= 0) & (rows < shape[0]) & (columns >= 0) & (columns < shape[1])
        x = jnp.where(inside, x_ref[...], 0.0)
        sides = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        o_ref[...] = x[1:-1, 1:-1] + 0.1 * (sides - 4 * x[1:-1, 1:-1])

    x = rng.normal(size=(16, 24)).astype(np.float32)
    for _ in range(2):
        x = pl.pallas_call(
            functools.partial(kernel, shape=x.shape, tile=8),
            ShapeDtypeStruct(x.shape, x.dtype),
            grid=(2, 3),
            in_specs=[pl.BlockSpec((pl.Element(10, (1, 1)), pl.Element(10, (1, 1))), lambda i, j: (i * 8, j * 8))],
            out_specs=pl.BlockSpec((8, 8), lambda i, j: (i, j)),
            interpret=True,
        )(x)
    return x


def case_convolution_along_a_line(rng):
    def kernel(x_ref, taps_ref, o_ref):
        acc = jnp.zeros(o_ref.shape, jnp.float32)
        for tap in range(4):
            acc += x_ref[pl.ds(tap, 16)] * taps_ref[tap]
        o_ref[...] = acc

    x, taps = rng.normal(size=(35,)).astype(np.float32), rng.normal(size=(4,)).astype(np.float32)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct((32,), np.float32),
        grid=(2,),
        in_specs=[pl.BlockSpec((pl.Element(19),), lambda i: (i * 16,)), pl.BlockSpec(memory_space=pltpu.SMEM)],
        out_specs=pl.BlockSpec((16,), lambda i: (i,)),
        interpret=True,
    )(x, taps)


def case_transpose_by_tiles(rng):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].T

    x = rng.integers(-100, 100, (24, 40)).astype(np.int16)
    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct((40, 24), x.dtype),
        grid=(3, 3),
        in_specs=[pl.BlockSpec((8, 16), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((16, 8), lambda i, j: (j, i)),
        interpret=True,
    )(x)


def case_adam_step_in_place(rng):
    """Three arrays are read and replaced; the outputs alias the inputs."""

    def kernel(rate_ref, gradient_ref, weight_ref, mean_ref, square_ref, new_weight_ref, new_mean_ref, new_square_ref):
        gradient = gradient_ref[...].astype(jnp.float32)
        mean = 0.9 * mean_ref[...] + 0.1 * gradient
        square = 0.999 * square_ref[...] + 0.001 * gradient**2
        new_weight_ref[...] = weight_ref[...] - rate_ref[0] * mean / (jnp.sqrt(square) + 1e-8)
        new_mean_ref[...], new_square_ref[...] = mean, square

    weight, mean = rng.normal(size=(2, 16, 32)).astype(np.float32)
    square = rng.uniform(0.1, 1, (16, 32)).astype(np.float32)
    gradient = rng.normal(size=(16, 32)).astype(ml_dtypes.bfloat16)
    block = pl.BlockSpec((8, 32), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        [ShapeDtypeStruct(weight.shape, weight.dtype)] * 3,
        grid=(2,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), block, block, block, block],
        out_specs=[block, block, block],
        input_output_aliases={2: 0, 3: 1, 4: 2},
        interpret=True,
    )(np.array([0.01], np.float32), gradient, weight, mean, square)


def case_top_two_routing(rng):
    """Which two experts each token goes to, with what weight, and how many tokens each expert gets."""

    def kernel(logits_ref, expert_ref, weight_ref, load_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            load_ref[...] = jnp.zeros_like(load_ref)

        logits = logits_ref[...]
        lanes = lax.broadcasted_iota(jnp.int32, logits.shape, 1)
        chosen = []
        for place in range(2):
            best = jnp.argmax(logits, axis=1)
            picked = lanes == best[:, None]
            chosen.append(jnp.max(logits, axis=1))
            expert_ref[:, place] = best
            load_ref[...] += jnp.sum(picked, axis=0)
            logits = jnp.where(picked, -jnp.inf, logits)
        first = lax.logistic(chosen[0] - chosen[1])
        weight_ref[:, 0], weight_ref[:, 1] = first, 1 - first

    logits = rng.normal(size=(24, 8)).astype(np.float32)
    pair = pl.BlockSpec((8, 2), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        [ShapeDtypeStruct((24, 2), np.int32), ShapeDtypeStruct((24, 2), np.float32), ShapeDtypeStruct((8,), np.int32)],
        grid=(3,),
        in_specs=[pl.BlockSpec((8, 8), lambda i: (i, 0))],
        out_specs=[pair, pair, pl.BlockSpec((8,), lambda i: (0,))],
        interpret=True,
    )(logits)


def case_cross_entropy_and_its_gradient(rng):
    def kernel(logits_ref, label_ref, loss_ref, gradient_ref):
        logits = logits_ref[...]
        largest = jnp.max(logits, axis=1, keepdims=True)
        log_total = jnp.log(jnp.sum(jnp.exp(logits - largest), axis=1, keepdims=True)) + largest
        hot = lax.broadcasted_iota(jnp.int32, logits.shape, 1) == label_ref[...][:, None]
        loss_ref[...] = log_total[:, 0] - jnp.sum(jnp.where(hot, logits, 0), axis=1)
        gradient_ref[...] = jnp.exp(logits - log_total) - hot

    logits, label = rng.normal(size=(16, 10)).astype(np.float32) * 3, rng.integers(0, 10, (16,)).astype(np.int32)
    rows, vector = pl.BlockSpec((8, 10), lambda i: (i, 0)), pl.BlockSpec((8,), lambda i: (i,))
    return pl.pallas_call(
        kernel,
        [ShapeDtypeStruct((16,), np.float32), ShapeDtypeStruct((16, 10), np.float32)],
        grid=(2,),
        in_specs=[rows, vector],
        out_specs=[vector, rows],
        interpret=True,
    )(logits, label)


def case_counter_based_random_numbers(rng):
    """Rounds of adding, rotating and mixing over unsigned integers, and floats from their bits."""

    def kernel(key_ref, bits_ref, uniform_ref):
        shape = bits_ref.shape
        first = lax.broadcasted_iota(jnp.uint32, shape, 0) + key_ref[0]
        second = lax.broadcasted_iota(jnp.uint32, shape, 1) + key_ref[1]
        for rotation in (13, 15, 26, 6):
            first = first + second
            second = (second << rotation) | (second >> (32 - rotation))
            second = second ^ first
        bits_ref[...] = second
        mantissa = (second >> 9) | np.uint32(0x3F800000)
        uniform_ref[...] = lax.bitcast_convert_type(mantissa, jnp.float32) - 1.0

    out_shape = [ShapeDtypeStruct((8, 16), np.uint32), ShapeDtypeStruct((8, 16), np.float32)]
    return pl.pallas_call(kernel, out_shape, interpret=True)(rng.integers(0, 2**32, (2,), np.uint32))


def case_mandelbrot(rng):
    def kernel(o_ref):
        shape = o_ref.shape
        i, j = pl.program_id(0), pl.program_id(1)
        y = (i * 8 + lax.broadcasted_iota(jnp.int32, shape, 0)).astype(jnp.float32) / 8 - 1
        x = (j * 8 + lax.broadcasted_iota(jnp.int32, shape, 1)).astype(jnp.float32) / 8 - 2

        def step(_, state):
            a, b, count = state
            inside = a * a + b * b < 4
            a, b = jnp.where(inside, a * a - b * b + x, a), jnp.where(inside, 2 * a * b + y, b)
            return a, b, count + inside

        o_ref[...] = lax.fori_loop(0, 20, step, (x, y, jnp.zeros(shape, jnp.int32)))[2]

    return pl.pallas_call(
        kernel,
        ShapeDtypeStruct((16, 24), np.int32),
        grid=(2, 3),
        out_specs=pl.BlockSpec((8, 8), lambda i, j: (i, j)),
        interpret=True,
    )()


def case_game_of_life(rng):
    def kernel(x_ref, o_ref):
        def generation(_, x):
            ring = jnp.concatenate([x[-1:], x, x[:1]], axis=0)
            ring = jnp.concatenate([ring[:, -1:], ring, ring[:, :1]], axis=1)
            near = sum(ring[i : i + 16, j : j + 16] for i in range(3) for j in range(3)) - x
            return ((near == 3) | ((x == 1) & (near == 2))).astype(jnp.int8)

        o_ref[...] = lax.fori_loop(0, 3, generation, x_ref[...])

    x = rng.integers(0, 2, (16, 16)).astype(np.int8)
    return pl.pallas_call(kernel, ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)


def case_bitonic_sort(rng):
    """A sorting network over one row: compare with the partner, keep the smaller or the larger."""

    def kernel(x_ref, o_ref):
        x, lane = x_ref[...], lax.iota(jnp.int32, 16)
        size = 2
        while size <= 16:
            distance = size // 2
            while distance:
                partner = jnp.take(x, lane ^ distance)
                keep_smaller = ((lane & distance) == 0) == ((lane & size) == 0)
                x = jnp.where(keep_smaller, jnp.minimum(x, partner), jnp.maximum(x, partner))
                distance //= 2
            size *= 2
        o_ref[...] = x

    x = rng.normal(size=(16,)).astype(np.float32)
    return pl.pallas_call(kernel, ShapeDtypeStruct(x.shape, x.dtype), interpret=True)(x)
