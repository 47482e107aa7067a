"""Control flow inside kernels, and references made there."""

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def run(kernel, out_shape, *arrays, **options):
    return pl.pallas_call(kernel, out_shape=out_shape, interpret=True, **options)(*arrays)


def case_when(rng):
    def kernel(n_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]

        @pl.when(n_ref[0] > 2)
        def _():
            o_ref[0] = jnp.zeros((8,))

        @pl.when(n_ref[0] > 100)
        def _():
            o_ref[1] = jnp.zeros((8,))

        @pl.when(True)
        def _():
            o_ref[2] += 1.0

        @pl.when(False)
        def _():
            o_ref[3] += 1.0

        @pl.when(jnp.any(x_ref[...] > 0))
        def _():
            @pl.when(n_ref[1] == 7)
            def _():
                o_ref[3] = x_ref[0] * 2

    x = rng.normal(size=(4, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), np.array([5, 7], np.int32), x)


def case_fori_loop(rng):
    def kernel(n_ref, x_ref, static_ref, traced_ref, unrolled_ref, pair_ref):
        static_ref[...] = lax.fori_loop(0, 5, lambda i, acc: acc + x_ref[i], jnp.zeros((8,)))
        traced_ref[...] = lax.fori_loop(n_ref[0], n_ref[1], lambda i, acc: acc * 0.5 + x_ref[i], x_ref[0])
        unrolled_ref[...] = lax.fori_loop(0, 4, lambda i, acc: acc + x_ref[i] * i, jnp.zeros((8,)), unroll=True)
        low, high = lax.fori_loop(
            0, 6, lambda i, pair: (jnp.minimum(pair[0], x_ref[i]), jnp.maximum(pair[1], x_ref[i])), (x_ref[0], x_ref[0])
        )
        pair_ref[0], pair_ref[1] = low, high

    x = rng.normal(size=(6, 8)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(shape, x.dtype) for shape in [(8,), (8,), (8,), (2, 8)]]
    return run(kernel, out_shape, np.array([1, 5], np.int32), x)


def case_loops_that_run_no_time(rng):
    def kernel(n_ref, x_ref, o_ref):
        o_ref[0] = lax.fori_loop(n_ref[0], n_ref[0], lambda i, acc: acc + 1.0, x_ref[0])
        o_ref[1] = lax.fori_loop(n_ref[0], 0, lambda i, acc: acc + 1.0, x_ref[1])
        o_ref[2] = lax.while_loop(lambda value: value[0] > 1e9, lambda value: value + 1.0, x_ref[2])

    x = rng.normal(size=(3, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), np.array([3], np.int32), x)


def case_loop_decorator(rng):
    def kernel(n_ref, x_ref, o_ref, stepped_ref, unrolled_ref):
        o_ref[...] = jnp.zeros_like(o_ref)

        @pl.loop(0, 8)
        def _(i):
            o_ref[i] = x_ref[i] * i

        stepped_ref[...] = jnp.zeros_like(stepped_ref)

        @pl.loop(n_ref[0], 8, step=3)
        def _(i):
            stepped_ref[i] += x_ref[i] + 1

        unrolled_ref[...] = jnp.zeros_like(unrolled_ref)

        @pl.loop(0, 8, step=2, unroll=True)
        def _(i):
            unrolled_ref[i] = x_ref[i + 1]

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct(x.shape, x.dtype)] * 3, np.array([1], np.int32), x)


def case_loop_decorator_with_carry(rng):
    def kernel(x_ref, total_ref, o_ref):
        @pl.loop(0, 8, init_carry=jnp.zeros((12,), jnp.float32))
        def total(i, acc):
            o_ref[i] = acc
            return acc + x_ref[i]

        total_ref[...] = total

    x = rng.normal(size=(8, 12)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct((12,), x.dtype), ShapeDtypeStruct(x.shape, x.dtype)], x)


def case_python_loop_unrolls(rng):
    def kernel(x_ref, o_ref):
        for i in range(4):
            o_ref[i] = x_ref[3 - i] if i % 2 else x_ref[i] * i

    x = rng.normal(size=(4, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), x)


def case_while_loop(rng):
    """The length of a number's way to one under Collatz's rule."""

    def kernel(n_ref, o_ref):
        def steps(n):
            def advance(state):
                n, count = state
                return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

            return lax.while_loop(lambda state: state[0] != 1, advance, (n, 0))[1]

        for i in range(6):
            o_ref[i] = steps(n_ref[i])

    return run(kernel, ShapeDtypeStruct((6,), np.int32), np.array([1, 2, 7, 27, 6, 9], np.int32))


def case_while_loop_over_references(rng):
    """Newton's method until the step is small, its state in scratch."""

    def kernel(x_ref, o_ref, count_ref, guess_ref):
        guess_ref[...] = jnp.ones_like(guess_ref)

        def improve(state):
            count, _ = state
            better = 0.5 * (guess_ref[...] + x_ref[...] / guess_ref[...])
            error = jnp.max(jnp.abs(better - guess_ref[...]))
            guess_ref[...] = better
            return count + 1, error

        start = (jnp.int32(0), jnp.float32(1))
        count_ref[0] = lax.while_loop(lambda state: (state[0] < 50) & (state[1] > 1e-3), improve, start)[0]
        o_ref[...] = guess_ref[...]

    x = rng.uniform(1, 4, (4, 8)).astype(np.float32)
    out_shape = [ShapeDtypeStruct(x.shape, x.dtype), ShapeDtypeStruct((1,), np.int32)]
    return run(kernel, out_shape, x, scratch_shapes=[pltpu.VMEM(x.shape, x.dtype)])


def case_cond(rng):
    def kernel(n_ref, x_ref, o_ref):
        o_ref[0] = lax.cond(n_ref[0] > 3, lambda: x_ref[0], lambda: -x_ref[0])
        o_ref[1] = lax.cond(n_ref[0] < 3, lambda v: v * 2, lambda v: v * 3, x_ref[1])
        low, high = lax.cond(n_ref[1] == 1, lambda a, b: (a, b), lambda a, b: (b, a), x_ref[2], x_ref[3])
        o_ref[2], o_ref[3] = low, high

    x = rng.normal(size=(4, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), np.array([5, 0], np.int32), x)


def case_cond_that_writes(rng):
    def kernel(n_ref, x_ref, o_ref):
        def first():
            o_ref[0] = x_ref[1]
            return jnp.float32(1)

        def second():
            o_ref[1] = x_ref[0]
            return jnp.float32(2)

        o_ref[...] = jnp.zeros_like(o_ref)
        for i in range(2):
            o_ref[2 + i] = jnp.full((8,), lax.cond(n_ref[i] > 0, first, second))

    x = rng.normal(size=(4, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), np.array([1, 0], np.int32), x)


def case_switch_clamps_its_index(rng):
    def kernel(n_ref, x_ref, o_ref):
        branches = [lambda v: v, lambda v: v * 2, jnp.exp]
        for i in range(5):
            o_ref[i] = lax.switch(n_ref[i], branches, x_ref[i])

    x = rng.normal(size=(5, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), np.array([0, 1, 2, 9, -4], np.int32), x)


def case_nested_control_flow(rng):
    """Bubble sort of one row, swaps under a condition inside two loops."""

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...]

        @pl.loop(0, 8)
        def _(i):
            @pl.loop(0, 7 - i)
            def _(j):
                @pl.when(o_ref[j] > o_ref[j + 1])
                def _():
                    larger = o_ref[j]
                    o_ref[j] = o_ref[j + 1]
                    o_ref[j + 1] = larger

    x = rng.normal(size=(8,)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), x)


def case_scan(rng):
    def kernel(x_ref, last_ref, o_ref):
        def step(carry, row):
            carry = 0.5 * carry + row
            return carry, carry * 2

        last_ref[...], o_ref[...] = lax.scan(step, jnp.zeros((8,)), x_ref[...])

    x = rng.normal(size=(6, 8)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct((8,), x.dtype), ShapeDtypeStruct(x.shape, x.dtype)], x)


def case_run_scoped(rng):
    def kernel(x_ref, o_ref, total_ref):
        def body(sum_ref, *, count_ref):
            sum_ref[...] = jnp.zeros_like(sum_ref)
            count_ref[0] = 0

            @pl.loop(0, 4)
            def _(i):
                sum_ref[...] += x_ref[i]
                count_ref[0] += 1

            o_ref[...] = sum_ref[...]
            return sum_ref[0] * count_ref[0]

        total_ref[0] = pl.run_scoped(body, pltpu.VMEM((8,), jnp.float32), count_ref=pltpu.SMEM((1,), jnp.int32))

    x = rng.normal(size=(4, 8)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct((8,), x.dtype), ShapeDtypeStruct((1,), x.dtype)], x)


def case_run_scoped_inside_a_loop(rng):
    def kernel(x_ref, o_ref):
        @pl.loop(0, 4)
        def _(i):
            def body(row_ref):
                row_ref[...] = x_ref[i]
                row_ref[0] = 0.0
                pl.run_scoped(lambda inner_ref: outer(inner_ref, row_ref), pltpu.VMEM((8,), jnp.float32))

            def outer(inner_ref, row_ref):
                inner_ref[...] = row_ref[...] * 2
                o_ref[i] = inner_ref[...]

            pl.run_scoped(body, pltpu.VMEM((8,), jnp.float32))

    x = rng.normal(size=(4, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), x)


def case_with_scoped(rng):
    def kernel(x_ref, o_ref):
        @pl.with_scoped(pltpu.VMEM((8,), jnp.float32), flag_ref=pltpu.SMEM((1,), jnp.int32))
        def body(scratch_ref, flag_ref):
            flag_ref[0] = 2
            scratch_ref[...] = x_ref[0] * flag_ref[0]
            o_ref[...] = scratch_ref[...] + 1

        body()

    return run(kernel, ShapeDtypeStruct((8,), np.float32), rng.normal(size=(2, 8)).astype(np.float32))


def case_run_state_inside_a_kernel(rng):
    def kernel(x_ref, o_ref):
        @pl.run_state
        def totals(refs):
            sum_ref, product_ref = refs

            @pl.loop(0, 4)
            def _(i):
                sum_ref[...] += x_ref[i]
                product_ref[...] *= x_ref[i]

        o_ref[0], o_ref[1] = totals((jnp.zeros((8,)), jnp.ones((8,))))

    return run(kernel, ShapeDtypeStruct((2, 8), np.float32), rng.normal(size=(4, 8)).astype(np.float32))


def case_run_state_outside_a_kernel(rng):
    def count(refs):
        x_ref, count_ref = refs

        @pl.loop(0, 8)
        def _(i):
            @pl.when(x_ref[i] > 0)
            def _():
                count_ref[0] += 1

        x_ref[0] = jnp.float32(0)

    return pl.run_state(count)((rng.normal(size=(8,)).astype(np.float32), np.zeros((1,), np.int32)))


def case_multiple_of_and_cdiv(rng):
    def kernel(n_ref, x_ref, o_ref):
        start = pl.multiple_of(n_ref[0] * 4, 4)
        o_ref[...] = x_ref[pl.ds(start, 4)] + pl.cdiv(n_ref[0] + 6, 4)

    x = rng.normal(size=(16, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct((4, 8), x.dtype), np.array([2], np.int32), x)


def case_debug_print(rng):
    def kernel(n_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
        pl.debug_print("before")
        pl.debug_print("n = {}", n_ref[0])

        @pl.when(n_ref[0] > 2)
        def _():
            pl.debug_print("{} and {}", n_ref[0] + 1, n_ref[0] * 2)

    x = rng.normal(size=(4,)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), np.array([5], np.int32), x)


def case_scan_of_trees_from_the_end(rng):
    """Horner's rule and its intermediate results: the coefficients of the highest power stand last."""

    def kernel(x_ref, coefficients_ref, o_ref, steps_ref, powers_ref):
        def step(carry, coefficients):
            value, power = carry
            value = value * x_ref[...] + coefficients["a"] + coefficients["b"]
            return (value, power + 1), (value, power)

        start = (jnp.zeros((8,)), jnp.int32(0))
        xs = {"a": coefficients_ref[...], "b": jnp.arange(5, dtype=jnp.float32)}
        (o_ref[...], _), (steps_ref[...], powers_ref[...]) = lax.scan(step, start, xs, reverse=True)

    x, coefficients = rng.normal(size=(8,)).astype(np.float32), rng.normal(size=(5,)).astype(np.float32)
    shapes = [ShapeDtypeStruct((8,), x.dtype), ShapeDtypeStruct((5, 8), x.dtype), ShapeDtypeStruct((5,), np.int32)]
    return run(kernel, shapes, x, coefficients)


def case_scan_without_arrays(rng):
    def kernel(x_ref, o_ref, all_ref):
        o_ref[...], all_ref[...] = lax.scan(lambda c, _: (c * 0.5 + 1, c), x_ref[...], None, length=4)

    x = rng.normal(size=(8,)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct((8,), x.dtype), ShapeDtypeStruct((4, 8), x.dtype)], x)


def case_map(rng):
    def kernel(x_ref, o_ref, total_ref):
        o_ref[...], total_ref[...] = lax.map(lambda row: (row - jnp.max(row), jnp.sum(row)), x_ref[...])

    x = rng.normal(1, 1, (6, 8)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct(x.shape, x.dtype), ShapeDtypeStruct((6,), x.dtype)], x)


def case_with_scoped_takes_arguments(rng):
    def kernel(x_ref, o_ref):
        @pl.with_scoped(pltpu.VMEM((8,), jnp.float32))
        def store_twice(row, scale, scratch_ref):
            scratch_ref[...] = x_ref[row] * scale
            o_ref[row] = scratch_ref[...] + scratch_ref[...]

        store_twice(0, 2.0)
        store_twice(1, 3.0)

    x = rng.normal(size=(2, 8)).astype(np.float32)
    return run(kernel, ShapeDtypeStruct(x.shape, x.dtype), x)


def case_sizes(rng):
    """The arithmetic of sizes, which happens while a kernel is traced."""

    def kernel(o_ref):
        sizes = [pl.align_to(n, 8) + 100 * pl.next_power_of_2(n) for n in (1, 8, 9, 100)]
        for n, size in enumerate([*sizes, *pl.strides_from_shape((2, 3, 4, 5))]):
            o_ref[n] = size

    return run(kernel, ShapeDtypeStruct((8,), np.int32))


def case_associative_scan(rng):
    """Running sums, running products with their signs, and a linear recurrence, each in logarithmically many steps."""

    def recurrence(earlier, later):
        return earlier[0] * later[0], later[0] * earlier[1] + later[1]

    def kernel(a_ref, b_ref, *out_refs):
        a, b = a_ref[...], b_ref[...]
        out_refs[0][...] = lax.associative_scan(jnp.add, b)
        out_refs[1][...] = lax.associative_scan(jnp.multiply, a, reverse=True, axis=1)
        out_refs[2][...] = lax.associative_scan(recurrence, (a, b))[1]
        out_refs[3][...] = lax.associative_scan(jnp.maximum, b, axis=-1)

    a, b = rng.uniform(0.5, 1.1, (2, 7, 5)).astype(np.float32)
    return run(kernel, [ShapeDtypeStruct(a.shape, a.dtype)] * 4, a, b)
