"""Rows: references, masked and atomic access, control flow, debugging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from palladio.types import dtypes
from tests.conformance.rows import ALL, BITS, INTEGERS, NUMBERS, Array, Case, Row, bits, draw, row, wide, wrapped

INT = np.dtype(np.int32)


def copied(
    name: str, source: Callable[[Any], Any], reference: Callable[[Array], Array], shape: tuple[int, ...] = (6, 8)
) -> Row:
    """What is read through an access of the input reference."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x = draw(rng, dtype, shape)

        def kernel(x_ref: Any, o_ref: Any) -> None:
            o_ref[...] = source(x_ref)

        return Case(kernel, [x], [reference(wide(x))], [dtype], slack=0)

    return Row("memory", name, ALL, make)


READS = [
    copied("load", lambda ref: ref[...], lambda x: x),
    copied("load_an_element", lambda ref: ref[2, 3], lambda x: x[2, 3]),
    copied("load_a_slice", lambda ref: ref[1:4, 2:], lambda x: x[1:4, 2:]),
    copied("load_with_a_stride", lambda ref: ref[pl.ds(1, 3, stride=2), :], lambda x: x[1:6:2]),
    copied("load_a_row_at", lambda ref: ref.at[2][1:3], lambda x: x[2, 1:3]),
    copied("load_of_views", lambda ref: ref.at[1:5].at[:, 2:6][1:3, ::2], lambda x: x[1:5, 2:6][1:3, ::2]),
    copied("load_transposed", lambda ref: ref.T[1:3], lambda x: x.T[1:3]),
    copied("load_reshaped", lambda ref: ref.reshape(4, 12)[1:3], lambda x: x.reshape(4, 12)[1:3]),
    copied("load_rows", lambda ref: ref[lax.iota(jnp.int32, 3) * 4 % 8, :], lambda x: x[[0, 4, 0]]),
    copied("load_rows_from_the_end", lambda ref: ref[lax.iota(jnp.int32, 3) - 2, :], lambda x: x[[-2, -1, 0]]),
    copied(
        "load_an_element_from_the_end",
        lambda ref: ref[jnp.sum(lax.iota(jnp.int32, 2)) - 3, lax.iota(jnp.int8, 4)[3] - 4],
        lambda x: x[-2, -1],
    ),
]


def written(
    name: str, target: Callable[[Any, Any], None], reference: Callable[[Array, Array], None], part: tuple[int, ...]
) -> Row:
    """What a write does to an output that holds other values before."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x, y = draw(rng, dtype, (6, 8)), draw(rng, dtype, part)
        expected = wide(x)
        reference(expected, wide(y))

        def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]
            target(o_ref, y_ref[...])

        return Case(kernel, [x, y], [expected], [dtype], slack=0)

    return Row("memory", name, ALL, make)


def _write(view: Callable[[Any], Any], key: Any) -> Callable[[Any, Any], None]:
    return lambda ref, value: view(ref).__setitem__(key, value)


WRITES = [
    written(
        "store_a_slice", _write(lambda ref: ref, (slice(1, 3), slice(4, 8))), _write(lambda x: x[1:3, 4:8], ...), (2, 4)
    ),
    written("store_a_row", _write(lambda ref: ref, 2), _write(lambda x: x[2], ...), (8,)),
    written(
        "store_a_row_from_the_end",
        lambda ref, value: ref.__setitem__(jnp.sum(lax.iota(jnp.int32, 2)) - 3, value),
        _write(lambda x: x[-2], ...),
        (8,),
    ),
    written("store_an_element", _write(lambda ref: ref, (5, 7)), _write(lambda x: x, (5, 7)), ()),
    written("store_strided", _write(lambda ref: ref, pl.ds(0, 3, stride=2)), _write(lambda x: x[0:6:2], ...), (3, 8)),
    written(
        "store_through_views",
        _write(lambda ref: ref.at[2:5].T, slice(1, 3)),
        _write(lambda x: x[2:5].T[1:3], ...),
        (2, 3),
    ),
    written(
        "store_reshaped", _write(lambda ref: ref.reshape(4, 12), 1), _write(lambda x: x.reshape(4, 12)[1], ...), (12,)
    ),
]


@row("memory", ALL)
def bounds_known_at_run_time(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, at = draw(rng, dtype, (9, 4)), np.array([3, 1], np.int32)
    expected = wide(x)
    expected[1:3] = wide(x)[3:5]

    def kernel(x_ref: Any, at_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref[pl.ds(at_ref[1], 2)] = x_ref[pl.ds(at_ref[0], 2)]

    return Case(kernel, [x, at], [expected], [dtype], slack=0)


@row("memory", ALL)
def reads_past_the_edge_are_uninitialised(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """And writes past it are dropped."""
    x, at = draw(rng, dtype, (4, 3)), np.array(2, np.int32)
    poison = wide(np.array(dtypes.uninitialized(dtype), dtype))
    expected = np.concatenate([wide(x)[2:], np.full((2, 3), poison, wide(x).dtype)])
    kept = wide(x)
    kept[2:] = wide(x)[:2]

    def kernel(x_ref: Any, at_ref: Any, read_ref: Any, written_ref: Any) -> None:
        read_ref[...] = x_ref[pl.ds(at_ref[...], 4)]
        written_ref[...] = x_ref[...]
        written_ref[pl.ds(at_ref[...], 4)] = x_ref[...]

    return Case(kernel, [x, at], [expected, kept], [dtype] * 2, slack=0)


@row("memory", ALL)
def unwritten_elements_are_uninitialised(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """The poison that every other row looks for."""
    x = draw(rng, dtype, (2, 3))
    expected = np.full((4, 3), wide(np.array(dtypes.uninitialized(dtype), dtype)), wide(x).dtype)
    expected[1:3] = wide(x)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[1:3] = x_ref[...]

    return Case(kernel, [x], [expected], [dtype], slack=0)


@row("memory", ALL)
def swap(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (4, 3)), draw(rng, dtype, (2, 3))
    after = wide(x)
    after[1:3] = wide(y)

    def kernel(x_ref: Any, y_ref: Any, old_ref: Any, after_ref: Any) -> None:
        after_ref[...] = x_ref[...]
        old_ref[...] = after_ref.at[1:3].swap(y_ref[...])

    return Case(kernel, [x, y], [wide(x)[1:3], after], [dtype] * 2, slack=0)


@row("memory", NUMBERS)
def accumulate(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """An index that stands twice is added to twice."""
    x, at, y = draw(rng, dtype, (5,)), np.array([1, 3, 1], np.int32), draw(rng, dtype, (3,), 1, 2)
    expected = wide(x)
    for index, value in zip(at, wide(y)):
        expected[index] += value

    def kernel(x_ref: Any, at_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref.at[at_ref[...]].add(y_ref[...])

    return Case(kernel, [x, at, y], [wrapped(expected, dtype)], [dtype], slack=2)


@row("memory", NUMBERS)
def in_place_addition(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (4, 3)), draw(rng, dtype, (2, 3))
    expected = wide(x)
    expected[1:3] += wide(y)

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref[1:3] += y_ref[...]

    return Case(kernel, [x, y], [wrapped(expected, dtype)], [dtype])


@row("memory", tuple(dtype for dtype in NUMBERS))
def bits_of_a_reference(rng: np.random.Generator, dtype: np.dtype) -> Case:
    word = np.dtype(f"u{dtype.itemsize}")
    x = draw(rng, dtype, (4, 3))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref.bitcast(dtype)[...] = x_ref[...]

    return Case(kernel, [x], [wide(x.view(word))], [word])


@row("masked", ALL)
def masked_load(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, chosen = draw(rng, dtype, (4, 6)), draw(rng, dtypes.BOOL, (2, 6))

    def kernel(x_ref: Any, mask_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pltpu.load(x_ref.at[1:3], mask=mask_ref[...], other=jnp.ones((2, 6), dtype))

    return Case(kernel, [x, chosen], [np.where(chosen, wide(x)[1:3], wide(np.ones((), dtype)))], [dtype], slack=0)


@row("masked", ALL)
def masked_store(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y, chosen = draw(rng, dtype, (4, 6)), draw(rng, dtype, (2, 6)), draw(rng, dtypes.BOOL, (2, 6))
    expected = wide(x)
    expected[1:3] = np.where(chosen, wide(y), wide(x)[1:3])

    def kernel(x_ref: Any, y_ref: Any, mask_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        pltpu.store(o_ref.at[1:3], y_ref[...], mask=mask_ref[...])

    return Case(kernel, [x, y, chosen], [expected], [dtype], slack=0)


@row("masked", ALL)
def whole_rows(rng: np.random.Generator, dtype: np.dtype) -> Case:
    """A choice that leaves rows of the output as they were."""
    x, y = draw(rng, dtype, (5, 8)), draw(rng, dtype, (5, 8))
    chosen = np.array([[False], [True], [True], [False], [True]])

    def kernel(x_ref: Any, y_ref: Any, mask_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]
        o_ref[...] = jnp.where(mask_ref[...], y_ref[...], o_ref[...])

    return Case(kernel, [x, y, chosen], [np.where(chosen, wide(y), wide(x))], [dtype], slack=0)


@row("masked", ALL)
def the_mask_guards_the_edge(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, at = draw(rng, dtype, (5,)), np.array(2, np.int32)
    zero = wide(np.zeros((), dtype))
    expected = np.concatenate([wide(x)[2:], np.full((2,), zero, wide(x).dtype)])

    def kernel(x_ref: Any, at_ref: Any, o_ref: Any) -> None:
        inside = at_ref[...] + lax.iota(jnp.int32, 5) < 5
        o_ref[...] = pltpu.load(x_ref.at[pl.ds(at_ref[...], 5)], mask=inside, other=jnp.zeros((5,), dtype))

    return Case(kernel, [x, at], [expected], [dtype], slack=0)


def atomic(kind: str, step: Callable[[Any, Any], Any], accepted: tuple[np.dtype, ...], drawn: Any = draw) -> Row:
    """An atomic operation at five indices, one of them twice: the elements before and after, by a loop."""

    def make(rng: np.random.Generator, dtype: np.dtype) -> Case:
        x, at, y = drawn(rng, dtype, (6,)), np.array([4, 1, 5, 1, 0], np.int32), drawn(rng, dtype, (5,))
        after, old = wide(x), wide(y)
        for n, (index, value) in enumerate(zip(at, wide(y))):
            old[n] = after[index]
            after[index] = wrapped(np.asarray(step(after[index], value), after.dtype), dtype)

        def kernel(x_ref: Any, at_ref: Any, y_ref: Any, old_ref: Any, after_ref: Any) -> None:
            after_ref[...] = x_ref[...]
            operate = getattr(plgpu, f"atomic_{kind}")
            old_ref[...] = operate(after_ref, at_ref[...], y_ref[...])

        return Case(kernel, [x, at, y], [old, after], [dtype] * 2)

    return Row("atomic", kind, accepted, make)


ATOMICS = [
    atomic("add", lambda old, value: old + value, NUMBERS),
    atomic("max", max, NUMBERS),
    atomic("min", min, NUMBERS),
    atomic("and", lambda old, value: old & value, BITS, bits),
    atomic("or", lambda old, value: old | value, BITS, bits),
    atomic("xor", lambda old, value: old ^ value, BITS, bits),
    atomic("xchg", lambda old, value: value, ALL),
]


@row("atomic", INTEGERS)
def compare_and_swap(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, at = draw(rng, dtype, (4,), 0, 1), np.array([0, 1, 2, 3], np.int32)
    after = np.where(wide(x) == 1, 3, wide(x))

    def kernel(x_ref: Any, at_ref: Any, old_ref: Any, after_ref: Any) -> None:
        after_ref[...] = x_ref[...]
        three, one = jnp.full((4,), 3, dtype), jnp.ones((4,), dtype)
        old_ref[...] = plgpu.atomic_cas(after_ref.at[at_ref[...]], one, three)

    return Case(kernel, [x, at], [wide(x), after], [dtype] * 2)


@row("control", ALL)
def when(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y, number = draw(rng, dtype, (4,)), draw(rng, dtype, (4,)), np.array(3, np.int32)

    def kernel(x_ref: Any, y_ref: Any, number_ref: Any, done_ref: Any, left_ref: Any) -> None:
        done_ref[...] = x_ref[...]
        left_ref[...] = x_ref[...]

        @pl.when(number_ref[...] > 2)
        def _() -> None:
            done_ref[...] = y_ref[...]

        @pl.when(number_ref[...] > 3)
        def _() -> None:
            left_ref[...] = y_ref[...]

    return Case(kernel, [x, y, number], [wide(y), wide(x)], [dtype] * 2, slack=0)


@row("control", ALL)
def cond_and_switch(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y, number = draw(rng, dtype, (4,)), draw(rng, dtype, (4,)), np.array(7, np.int32)

    def kernel(x_ref: Any, y_ref: Any, number_ref: Any, a_ref: Any, b_ref: Any) -> None:
        n = number_ref[...]
        a_ref[...] = lax.cond(n < 5, lambda x, y: x, lambda x, y: y, x_ref[...], y_ref[...])
        b_ref[...] = lax.switch(n - 6, [lambda x, y: x, lambda x, y: y, lambda x, y: x], x_ref[...], y_ref[...])

    return Case(kernel, [x, y, number], [wide(y), wide(y)], [dtype] * 2, slack=0)


@row("control", NUMBERS)
def fori_loop(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, count = draw(rng, dtype, (4, 3), 0.25, 1), np.array(3, np.int32)

    def kernel(x_ref: Any, count_ref: Any, static_ref: Any, dynamic_ref: Any) -> None:
        start = jnp.zeros((3,), dtype)
        static_ref[...] = lax.fori_loop(0, 4, lambda i, total: total + x_ref[i], start)
        dynamic_ref[...] = lax.fori_loop(1, count_ref[...], lambda i, total: total + x_ref[i], start)

    return Case(kernel, [x, count], [wide(x).sum(0), wide(x)[1:3].sum(0)], [dtype] * 2, slack=3)


@row("control", NUMBERS)
def loop_with_step_and_carry(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (7, 3), 0.25, 1)

    def kernel(x_ref: Any, sum_ref: Any, copy_ref: Any) -> None:
        copy_ref[...] = jnp.zeros((7, 3), dtype)

        @pl.loop(0, 7, step=2)
        def _(i: Any) -> None:
            copy_ref[i] = x_ref[i]

        @pl.loop(1, 7, step=3, init_carry=jnp.zeros((3,), dtype))
        def total(i: Any, carry: Any) -> Any:
            return carry + x_ref[i]

        sum_ref[...] = total

    copied = np.zeros_like(wide(x)) if dtypes.is_float(dtype) else np.full((7, 3), 0, object)
    copied[::2] = wide(x)[::2]
    return Case(kernel, [x], [wide(x)[1] + wide(x)[4], copied], [dtype] * 2)


@row("control", NUMBERS)
def while_loop(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (8,), 1, 1.5)
    total, count = 0, 0
    while total < 3:
        total, count = total + wide(x)[count], count + 1

    def kernel(x_ref: Any, count_ref: Any) -> None:
        def step(carry: Any) -> Any:
            return carry[0] + x_ref[carry[1]].astype(jnp.float32), carry[1] + 1

        count_ref[...] = lax.while_loop(lambda carry: carry[0] < 3, step, (jnp.float32(0), jnp.int32(0)))[1]

    return Case(kernel, [x], [np.array(count)], [INT])


@row("control", NUMBERS)
def scoped_memory(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4, 3))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        def body(buffer_ref: Any, *, other_ref: Any) -> Any:
            buffer_ref[...] = x_ref[...]
            other_ref[...] = buffer_ref[1:3]
            return other_ref[...]

        o_ref[...] = pl.run_scoped(body, pltpu.VMEM((4, 3), dtype), other_ref=pltpu.VMEM((2, 3), dtype))

    return Case(kernel, [x], [wide(x)[1:3]], [dtype], slack=0)


@row("control", NUMBERS)
def run_state(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x, y = draw(rng, dtype, (4,)), draw(rng, dtype, (4,))

    def kernel(x_ref: Any, y_ref: Any, a_ref: Any, b_ref: Any) -> None:
        def exchange(refs: Any) -> None:
            first_ref, second_ref = refs
            first_ref[...] = second_ref.swap(first_ref[...])

        a_ref[...], b_ref[...] = pl.run_state(exchange)((x_ref[...], y_ref[...]))

    return Case(kernel, [x, y], [wide(y), wide(x)], [dtype] * 2, slack=0)


@row("control", INTEGERS)
def promises(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4,), 0, 3) * dtype.type(8)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = pl.multiple_of(x_ref[...], 8)

    return Case(kernel, [x], [wide(x)], [dtype])


@row("debug", NUMBERS)
def checks_and_prints(rng: np.random.Generator, dtype: np.dtype) -> Case:
    x = draw(rng, dtype, (4,), 0, 3)

    def kernel(x_ref: Any, o_ref: Any) -> None:
        with pl.enable_debug_checks():
            pl.debug_check(jnp.all(x_ref[...] >= 0), "nothing is negative")
        pl.debug_print("first: {}", x_ref[0])
        o_ref[...] = x_ref[...]

    return Case(kernel, [x], [wide(x)], [dtype], slack=0)
