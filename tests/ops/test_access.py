"""What a stack of transforms reads and writes, against a model that moves the numbers of the elements one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.ops.references import access, atomics, masked, memory
from palladio.types import dtypes
from palladio.types.transforms import Bitcast, Index, Operand, Reshape, SliceEntry, Transform, Transpose, transformed
from palladio.types.types import ArrayType

BORDER = 7  # no index of a test lies further outside
INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64]

Stack = tuple[tuple[int, ...], list[Transform], list[Any]]


@st.composite
def slices(draw: st.DrawFn, extent: int, operands: list[Any]) -> SliceEntry:
    stride = draw(st.integers(1, 3))
    if draw(st.booleans()):
        size = draw(st.integers(0, 4))
        operands.append(np.int32(draw(st.integers(-3, extent + 2))))
        return SliceEntry(Operand(len(operands) - 1), size if size * stride < 8 else 1, stride)
    size = draw(st.integers(0, -(-extent // stride)))
    last = max(0, extent - (size - 1) * stride - 1) if size else extent
    return SliceEntry(draw(st.integers(0, last)), size, stride)


@st.composite
def gathered(draw: st.DrawFn, extent: int, shape: tuple[int, ...], operands: list[Any]) -> Operand:
    ndim = draw(st.integers(0, len(shape)))
    own = tuple(draw(st.sampled_from((1, n))) for n in shape[len(shape) - ndim :])
    dtype = np.dtype(draw(st.sampled_from(INTEGERS)))
    least = 0 if dtype.kind == "u" else -2
    values = st.integers(least, extent + 2) if draw(st.booleans()) else st.integers(0, max(extent - 1, 0))
    found = draw(st.lists(values, min_size=math.prod(own), max_size=math.prod(own)))
    operands.append(np.asarray(found, dtype).reshape(own)[()])
    return Operand(len(operands) - 1)


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...], operands: list[Any], gathers: bool) -> Index:
    common = tuple(draw(st.lists(st.integers(0, 3), max_size=2))) if gathers else ()
    entries: list[Any] = []
    for extent in shape:
        kind = draw(st.sampled_from(("slice", "slice", "gather", "int")))
        if kind == "gather":
            entries.append(draw(gathered(extent, common, operands)))
        elif kind == "int" and extent:
            entries.append(draw(st.integers(0, extent - 1)))
        else:
            entries.append(draw(slices(extent, operands)))
    return Index(tuple(entries))


@st.composite
def stacks(draw: st.DrawFn) -> Stack:
    """The shape of an array, transforms and their operands. Integer arrays stand in one transform at most."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    operands: list[Any] = []
    transforms: list[Transform] = []
    gathers = draw(st.booleans())
    current = ArrayType(shape, dtypes.INT32)
    for kind in draw(st.lists(st.sampled_from(("index", "index", "reshape", "transpose", "bitcast")), max_size=4)):
        if kind == "index":
            transforms.append(draw(indices(current.shape, operands, gathers)))
        elif kind == "reshape":
            shapes = (current.size,), (1, *current.shape), (*current.shape, 1)
            transforms.append(Reshape(draw(st.sampled_from(shapes))))
        elif kind == "transpose":
            transforms.append(Transpose(tuple(draw(st.permutations(range(current.ndim))))))
        else:
            transforms.append(Bitcast(draw(st.sampled_from((dtypes.INT32, dtypes.FLOAT32)))))
        types = [ArrayType(np.shape(value), value.dtype) for value in operands]
        current = transformed(ArrayType(shape, dtypes.INT32), transforms, types)
    return shape, transforms, operands


def selected(shape: tuple[int, ...], transforms: Sequence[Transform], operands: Sequence[Any]) -> Any:
    """The number of each selected element, or -1 where it lies outside: NumPy's own indexing of a bordered array."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    for transform in transforms:
        if isinstance(transform, Index):
            key: list[Any] = []
            for entry in transform.entries:
                start = entry.start if isinstance(entry, SliceEntry) else entry
                start = operands[start.position].astype(np.int64) if isinstance(start, Operand) else start
                if isinstance(entry, SliceEntry):
                    first = int(start) + BORDER if entry.size else 0
                    key.append(slice(first, first + entry.size * entry.stride, entry.stride))
                else:
                    key.append(start + BORDER)
            numbers = np.pad(numbers, BORDER, constant_values=-1)[tuple(key)]
        elif isinstance(transform, Reshape):
            numbers = numbers.reshape(transform.shape)
        elif isinstance(transform, Transpose):
            numbers = numbers.transpose(transform.permutation)
    return np.asarray(numbers)


def uninitialized(numbers: Any, dtype: Any) -> Any:
    return np.full(numbers.shape, dtypes.uninitialized(np.dtype(dtype)), dtype)


def random_array(shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(1, 100, shape).astype(np.int32)


def last_dtype(transforms: Sequence[Transform]) -> Any:
    return next((t.dtype for t in reversed(transforms) if isinstance(t, Bitcast)), dtypes.INT32)


def same_bits(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def single_exit(stack: Stack) -> bool:
    """Whether at most one transform reaches outside, so that one dtype says what is read there."""
    shape, transforms, operands = stack
    outside = [bool((selected(shape, transforms[:count], operands) < 0).any()) for count in range(len(transforms) + 1)]
    exits = [count for count, transform in enumerate(transforms) if isinstance(transform, Index) and outside[count + 1]]
    return len({str(last_dtype(transforms[:count])) for count in exits}) <= 1


def read_by_model(array: Any, stack: Stack) -> Any:
    shape, transforms, operands = stack
    numbers = selected(shape, transforms, operands)
    exits = [n for n in range(len(transforms)) if (selected(shape, transforms[: n + 1], operands) < 0).any()]
    left_at = last_dtype(transforms[: exits[0]]) if exits else dtypes.INT32
    bits = uninitialized(numbers, left_at).view(np.int32)
    flat = np.append(array.reshape(-1), np.int32(0))
    return np.where(numbers >= 0, flat[numbers], bits).astype(np.int32).view(last_dtype(transforms))


@given(stacks())
def test_reading_gives_the_selected_elements_and_uninitialised_ones_outside(stack: Stack) -> None:
    shape, transforms, operands = stack
    array = random_array(shape)
    found = np.asarray(access.read(array, transforms, operands))
    expected = read_by_model(array, stack)
    assert found.shape == expected.shape
    if single_exit(stack):
        same_bits(found, expected)


@given(stacks())
def test_the_type_rule_names_what_reading_gives(stack: Stack) -> None:
    shape, transforms, operands = stack
    types = [ArrayType(np.shape(value), value.dtype) for value in operands]
    wanted = transformed(ArrayType(shape, dtypes.INT32), transforms, types)
    found = memory.extract.eval(random_array(shape), *operands, transforms=tuple(transforms))[0]
    assert ArrayType(found.shape, found.dtype) == wanted


def written_by_model(array: Any, numbers: Any, step: Any, chosen: Any) -> tuple[Any, dict[int, Any]]:
    """`step(old, n)` for the n-th selected element, one after the other, and the old elements."""
    flat, old = array.reshape(-1).copy(), {}
    for n, number in enumerate(numbers.reshape(-1)):
        if number >= 0 and chosen[n]:
            old[n] = flat[number]
            flat[number] = step(flat[number], n)
    return flat.reshape(array.shape), old


def own_layouts(array: Any) -> list[Any]:
    """The same array in memory of its own, and as a view whose elements do not lie one after the other."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return [array.copy(), wide[..., 0]]


def case(stack: Stack, seed: int) -> tuple[Any, Any, Any]:
    """The array, the numbers of the selection, and values of its dtype."""
    shape, transforms, operands = stack
    numbers = selected(shape, transforms, operands)
    values = random_array(numbers.shape, seed + 1).view(last_dtype(transforms))
    return random_array(shape, seed), numbers, values


@given(stacks())
def test_writing_replaces_the_selected_elements_and_drops_what_is_outside(stack: Stack) -> None:
    _, transforms, operands = stack
    array, numbers, values = case(stack, 3)
    bits = values.view(np.int32).reshape(-1)
    expected, _ = written_by_model(array, numbers, lambda old, n: bits[n], np.ones(bits.shape, bool))
    for target in own_layouts(array):
        access.write(target, transforms, operands, values)
        np.testing.assert_array_equal(target, expected)


@given(stacks())
def test_an_element_that_is_selected_twice_receives_both_additions(stack: Stack) -> None:
    shape, transforms, operands = stack
    transforms = [transform for transform in transforms if not isinstance(transform, Bitcast)]
    array, numbers, values = case((shape, transforms, operands), 5)
    flat = values.reshape(-1)
    expected, _ = written_by_model(array, numbers, lambda old, n: old + flat[n], np.ones(flat.shape, bool))
    for target in own_layouts(array):
        memory.accumulate.eval(target, values, *operands, transforms=tuple(transforms))
        np.testing.assert_array_equal(target, expected)
    inserted = memory.insert.eval(array, values, *operands, transforms=tuple(transforms), kind="add")[0]
    np.testing.assert_array_equal(inserted, expected)


@given(stacks())
def test_masked_elements_are_not_touched(stack: Stack) -> None:
    _, transforms, operands = stack
    array, numbers, values = case(stack, 7)
    mask = np.asarray(random_array(numbers.shape, 8) % 2 == 0)
    bits = values.view(np.int32).reshape(-1)
    expected, _ = written_by_model(array, numbers, lambda old, n: bits[n], mask.reshape(-1))
    for target in own_layouts(array):
        masked.store_masked.eval(target, values, mask, *operands, transforms=tuple(transforms))
        np.testing.assert_array_equal(target, expected)
    loaded = masked.load_masked.eval(array, mask, values, *operands, transforms=tuple(transforms))[0]
    kept = masked.load_masked.eval(array, ~mask, values, *operands, transforms=tuple(transforms))[0]
    read = np.asarray(access.read(array, transforms, operands))
    np.testing.assert_array_equal(np.where(mask, loaded, kept), read)
    np.testing.assert_array_equal(np.where(mask, kept, loaded), values)


@given(stacks(), st.sampled_from(atomics.KINDS))
def test_atomic_operations_see_the_previous_result(stack: Stack, kind: str) -> None:
    shape, transforms, operands = stack
    transforms = [transform for transform in transforms if not isinstance(transform, Bitcast)]
    array, numbers, values = case((shape, transforms, operands), 9)
    flat = values.reshape(-1)
    combine = memory.COMBINERS.get(kind, lambda old, new: new)
    everything = np.ones(flat.shape, bool)
    expected, before = written_by_model(array, numbers, lambda old, n: combine(old, flat[n]), everything)
    for target in own_layouts(array):
        old = atomics.atomic.eval(target, values, *operands, transforms=tuple(transforms), kind=kind)[0]
        np.testing.assert_array_equal(target, expected)
        assert old.shape == numbers.shape
        assert {n: old.reshape(-1)[n] for n in before} == before


@given(stacks())
def test_compare_and_swap_replaces_what_is_equal(stack: Stack) -> None:
    shape, transforms, operands = stack
    transforms = [transform for transform in transforms if not isinstance(transform, Bitcast)]
    array, numbers, values = case((shape, transforms, operands), 11)
    array, values = np.asarray(array % 2), np.asarray(values + 1)
    compare = np.zeros_like(values)
    flat = values.reshape(-1)
    everything = np.ones(flat.shape, bool)
    expected, before = written_by_model(array, numbers, lambda old, n: flat[n] if old == 0 else old, everything)
    for target in own_layouts(array):
        old = atomics.atomic_cas.eval(target, compare, values, *operands, transforms=tuple(transforms))[0]
        np.testing.assert_array_equal(target, expected)
        assert {n: old.reshape(-1)[n] for n in before} == before


TWICE = np.array([[5], [5]])


def test_a_byte_of_an_element_that_was_gathered_twice_is_written() -> None:
    stack = Index((Operand(0),)), Index((Operand(1), SliceEntry(0, 1))), Bitcast(np.dtype(np.uint8))
    for row in (0, 1):
        array = np.zeros(7, np.uint32)
        access.write(array, stack, [TWICE, np.int32(row)], np.uint8(255))
        np.testing.assert_array_equal(array, [0, 0, 0, 0, 0, 0xFFFFFFFF, 0])


def test_of_two_writes_to_the_bytes_of_one_element_the_last_one_wins() -> None:
    stack = Index((Operand(0),)), Bitcast(np.dtype(np.uint8))
    positions = np.array([[5, 2, 9], [5, 3, 1]])  # 9 lies outside
    for target in own_layouts(np.zeros(7, np.uint32)):
        access.write(target, stack, [positions], np.arange(24, dtype=np.uint8).reshape(8, 3))
        np.testing.assert_array_equal(target, [0, 0x1714110E, 0x0A070401, 0x1613100D, 0, 0x15120F0C, 0])


def test_of_two_joined_elements_that_share_a_byte_the_last_one_wins() -> None:
    stack = Index((Operand(0),)), Bitcast(np.dtype(np.uint16))
    array = np.zeros(7, np.uint8)
    access.write(array, stack, [np.array([[5], [2], [2], [6]])], np.array([[0x0102], [0x0304]], np.uint16))
    np.testing.assert_array_equal(array, [0, 0, 4, 0, 0, 2, 3])


def test_additions_to_the_halves_of_an_element_that_was_gathered_twice_add_up() -> None:
    stack = Index((Operand(0),)), Bitcast(np.dtype(np.int16))
    array = np.full(7, 0x0001_0001, np.int32)
    memory.accumulate.eval(array, np.full((4, 1), 2, np.int16), TWICE, transforms=stack)
    np.testing.assert_array_equal(array, [*[0x0001_0001] * 5, 0x0005_0005, 0x0001_0001])


def test_a_selection_of_nothing_after_a_change_of_width_writes_nothing() -> None:
    stack = Index((Operand(0),)), Index((SliceEntry(0, 0), SliceEntry(0, 1))), Bitcast(np.dtype(np.uint8))
    array = np.ones(7, np.uint32)
    access.write(array, stack, [TWICE], np.uint8(0))
    np.testing.assert_array_equal(array, np.ones(7))


@pytest.mark.parametrize("executor", ["reference", "cpu", "simulator"])
def test_a_mask_keeps_a_slice_past_the_end_inside(executor: str) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        mask = jnp.arange(8) < 3
        row = plgpu.load(x_ref.at[1].at[pl.ds(2, 8)], mask=mask, other=-1)
        plgpu.store(o_ref.at[pl.ds(1, 8)], row + 1, mask=mask)

    x = np.arange(10, dtype=np.int32).reshape(2, 5)
    out = pl.pallas_call(kernel, pl.ShapeDtypeStruct((4,), np.int32), interpret=executor)(x)
    assert out[1:].tolist() == [8, 9, 10]


def test_a_slice_past_the_end_without_a_mask_is_refused() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref.at[pl.ds(2, 8)][...]

    with pytest.raises(IndexError, match="the slice reaches outside axis 0"):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((8,), np.int32))(np.zeros(5, np.int32))


def test_a_mask_that_lets_elements_outside_through_is_found() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        plgpu.store(o_ref.at[pl.ds(0, 8)], plgpu.load(x_ref.at[pl.ds(0, 8)], mask=jnp.arange(8) < 6), mask=x_ref[0] < 0)

    with pytest.raises(pl.PalladioError, match="out-of-bounds"):
        plgpu.kernel(kernel, pl.ShapeDtypeStruct((5,), np.int32), interpret="simulator")(np.zeros(5, np.int32))
