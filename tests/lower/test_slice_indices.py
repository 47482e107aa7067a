"""Indices by arrays that count along an axis become slices, which select the same elements."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import lax
from palladio.driver.compile import PIPELINES
from palladio.driver.executors import CPU
from palladio.ir.core import walk
from palladio.lower import slice_indices
from palladio.passes import remove_dead_code, run_passes
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types.types import ArrayType
from palladio.types.views import View
from tests.passes.ir import after, check_unchanged

Index = Callable[[Any], Any]

COUNTING: dict[str, Index] = {
    "a vector": lambda s: (s + jnp.arange(6), 3),
    "a vector from the other side": lambda s: (jnp.arange(6) + s, s),
    "every second": lambda s: (2 * jnp.arange(6) + s, 3),
    "a multiple of all": lambda s: (3 * (s + jnp.arange(3)), 3),
    "beside a slice": lambda s: (slice(0, 9), s + jnp.arange(6)),
    "before a slice": lambda s: (s + jnp.arange(6), slice(2, 7)),
    "rows and columns": lambda s: (s + jnp.arange(6)[:, None], 2 + jnp.arange(5)[None, :]),
    "columns and rows": lambda s: (s + jnp.arange(6)[None, :], 2 + jnp.arange(5)[:, None]),
    "of both axes": lambda s: (
        s + lax.broadcasted_iota(np.int32, (6, 5), 0),
        lax.broadcasted_iota(np.int32, (6, 5), 1),
    ),
    "longer than the axis": lambda s: (s, jnp.arange(16)),
}
OTHER: dict[str, Index] = {
    "the diagonal": lambda s: (s + jnp.arange(6), s + jnp.arange(6)),
    "one row": lambda s: (s + jnp.arange(1)[:, None], 2 + jnp.arange(5)[None, :]),
    "backwards": lambda s: (s - jnp.arange(6), 3),
    "one again and again": lambda s: (s + 0 * jnp.arange(6), 3),
    "narrow numbers": lambda s: (s.astype(np.int8) + jnp.arange(6, dtype=np.int8), 3),
    "repeated": lambda s: (jnp.repeat(jnp.arange(3), 2), 3),
}
SHAPE = (9, 11)


STEPS = 5
STARTS = np.array([3, 0, -1, -4, -6, 8, 20, -20, 1, 2**31 - 3, -(2**31)], np.int32)


def results(index: Index, executor: str, steps: int = STEPS, loaded: bool = False) -> list[np.ndarray[Any, Any]]:
    """The reads and writes of a kernel that copies, doubles and increments a selection, at starts inside and outside.

    Args:
        loaded: whether a start is loaded, and so may be negative: then it counts from the end.
    """
    chosen = np.empty((30, 30))[tuple(index(np.int32(6)))]

    def kernel(starts: Any, mask: Any, x: Any, part: Any, out: Any) -> None:
        step = pl.program_id(0)
        where = index(starts[step] if loaded else 3 * step)
        found = plgpu.load(x.at[where], mask=mask[...], other=-1)
        part[step] = found

        @pl.when(step == 0)
        def _() -> None:
            out[...] = x[...]

        out[where] = 2 * found
        plgpu.store(out.at[where], found + 1, mask=mask[...])

    rng = np.random.default_rng(0)
    mask, x = rng.random(chosen.shape) < 0.7, rng.standard_normal(SHAPE).astype(np.float32)
    outputs = [pl.ShapeDtypeStruct(shape, np.float32) for shape in ((steps, *chosen.shape), SHAPE)]
    return pl.pallas_call(kernel, outputs, grid=(steps,), interpret=executor)(STARTS, mask, x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("title", [*COUNTING, *OTHER])
def test_the_same_elements_are_read_and_written(title: str) -> None:
    expected, found = (results({**COUNTING, **OTHER}[title], executor) for executor in ("reference", "cpu"))
    assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]


@pytest.mark.parametrize("title", [*COUNTING, *OTHER])
def test_starts_may_be_negative(title: str) -> None:
    expected, found = (
        results({**COUNTING, **OTHER}[title], executor, len(STARTS), loaded=True) for executor in ("reference", "cpu")
    )
    assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]


def test_the_first_element_decides_between_both_accesses() -> None:
    found = after(
        """
        program f(s:i32[], x:ref<any, f32[64]>) {
          a:i32[8] = iota {shape=(8,), dtype=i32, axis=0}
          b:i32[8] = add s, a
          c:bool[8] = lt b, 0:i32
          d:i32[8] = add b, 64:i32
          e:i32[8] = select c, d, b
          f:f32[8] = load x[e]
          g:f32[8] = mul f, 2.0:f32
          store x[e], g
          return
        }
        """,
        slice_indices,
        remove_dead_code,
    )
    assert found.count("ge s, 0:i32") == 2
    for access in ("load", "store"):
        elements, slices = re.findall(rf"{access} x\[(.*?)\]", found)
        assert elements.isidentifier() and slices.endswith(":+8")


@pytest.mark.parametrize("extent", [2**31 - 9, 2**31 - 8])
def test_an_array_that_overflows_must_not_come_back_inside(extent: int) -> None:
    found = after(
        f"""
        program f(s:i32[], x:ref<any, i8[{extent}]>, y:ref<any, i8[8]>) {{
          a:i32[8] = iota {{shape=(8,), dtype=i32, axis=0}}
          b:i32[8] = add s, a
          c:bool[8] = lt b, 0:i32
          d:i32[8] = add b, {extent}:i32
          e:i32[8] = select c, d, b
          f:i8[8] = load x[e]
          store y, f
          return
        }}
        """,
        slice_indices,
    )
    assert ("cond" in found) == (extent + 8 < 2**31)


@pytest.mark.parametrize("title", [*COUNTING, *OTHER])
def test_only_arrays_that_count_are_slices(title: str) -> None:
    def kernel(x: Any, out: Any) -> None:
        out[...] = x[{**COUNTING, **OTHER}[title](pl.program_id(0))].sum().reshape(1)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct((1,), np.float32), grid=(STEPS,))
    program = stage(lambda x: [call(x)], [ArrayType(SHAPE, np.dtype(np.float32))], wrap, name="call").program
    views = [
        view
        for eqn in walk(run_passes(program, PIPELINES[CPU.name]))
        if eqn.op.name == "load"
        for view in eqn.transforms
        if isinstance(view, View)
    ]
    assert views
    assert any(view.gathered for view in views) == (title in OTHER)


def test_counting_before_a_loop_is_known_in_it() -> None:
    found = after(
        """
        program f(x:ref<any, f32[64]>) {
          a:i32[8] = iota {shape=(8,), dtype=i32, axis=0}
          loop 0:i32, 5:i32, x, a {body=program step(i:i32[], x:ref<any, f32[64]>, a:i32[8]) {
            b:i32[] = mul i, 8:i32
            c:i32[8] = add a, b
            d:f32[8] = load x[c]
            e:f32[8] = mul d, 2.0:f32
            store x[c], e
            return
          }, constants=2, step=1, unroll=1}
          return
        }
        """,
        slice_indices,
        remove_dead_code,
    )
    assert "load x[b:+8]" in found and "store x[b:+8]" in found and "iota" not in found


def test_a_carried_array_does_not_count() -> None:
    check_unchanged(
        slice_indices,
        """
        program f(x:ref<any, f32[64]>) {
          a:i32[8] = iota {shape=(8,), dtype=i32, axis=0}
          b:i32[8] = loop 0:i32, 5:i32, x, a {body=program step(i:i32[], x:ref<any, f32[64]>, a:i32[8]) {
            b:f32[8] = load x[a]
            c:i32[8] = mul a, a
            store x[0:8], b
            return c
          }, constants=1, step=1, unroll=1}
          return
        }
        """,
    )


@pytest.mark.parametrize(
    "wrapping",
    [
        lambda i: jnp.arange(8) * 2**30 + i,
        lambda i: (jnp.arange(8) + i) * 2**16 * 2**16,
        lambda i: (jnp.arange(8) + 1) * 2**30 * 2**30 * 2**30,
        lambda i: jnp.arange(8) + i * 2**30 * 2**30 * 2**30 + i,
        lambda i: jnp.arange(8, dtype=np.int64) * 2**62 + 3,
    ],
)
def test_indices_that_wrap_around(wrapping: Index) -> None:
    def kernel(x: Any, out: Any) -> None:
        out[pl.program_id(0)] = x[wrapping(pl.program_id(0))]

    x = np.arange(1, 21, dtype=np.float32)
    shape = pl.ShapeDtypeStruct((3, 8), np.float32)
    expected, found = (pl.pallas_call(kernel, shape, grid=(3,), interpret=name)(x) for name in ("reference", "cpu"))
    np.testing.assert_array_equal(found, expected)


def masked_stores(rows: int, columns: int, swapped: bool = False, narrow: bool = False) -> list[str]:
    """The stores of a tile of 16 by 16 that is accessed where rows and columns are below these numbers."""

    def kernel(x: Any, out: Any) -> None:
        i, j = (pl.program_id(axis) * 16 + jnp.arange(16) for axis in range(2))
        below, beside = i < rows, j < columns
        mask = beside[:, None] & below[None, :] if swapped else below[:, None] & beside[None, :]
        mask = mask & (jnp.arange(16)[:, None] < 9) if narrow else mask
        tile = plgpu.load(x.at[i[:, None], j[None, :]], mask=mask, other=0)
        plgpu.store(out.at[i[:, None], j[None, :]], tile + 1, mask=mask)

    x = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    results = []
    for executor in ("reference", "cpu"):
        call = pl.pallas_call(
            kernel,
            pl.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(3, 3),
            in_specs=[pl.BlockSpec(x.shape, lambda i, j: (0, 0))],
            out_specs=pl.BlockSpec(x.shape, lambda i, j: (0, 0)),
            interpret=executor,
        )
        results.append(call(x))
    np.testing.assert_array_equal(*results)
    program = stage(lambda x: [call(x)], [ArrayType(x.shape, x.dtype)], wrap, name="call").program
    return [eqn.op.name for eqn in walk(run_passes(program, PIPELINES[CPU.name])) if "store" in eqn.op.name]


def test_a_mask_that_only_excludes_what_is_outside_is_dropped() -> None:
    assert masked_stores(40, 40) == masked_stores(48, 41) == ["store"]


@pytest.mark.parametrize("other", [(39, 40), (40, 8), (40, 40, True), (40, 40, False, True)])
def test_other_masks_stay(other: tuple[Any, ...]) -> None:
    assert masked_stores(*other) == ["store_masked"]
