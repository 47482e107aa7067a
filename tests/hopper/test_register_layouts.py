"""Register layouts against the formulas of the PTX ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio.gpu as plgpu
from palladio.hopper.layouts import registers
from palladio.hopper.layouts.casts import requested
from palladio.hopper.layouts.registers import Layout
from palladio.types.layouts import described_layout
from palladio.types.types import ArrayType

T = np.arange(128)
WARP, LANE = T // 32, T % 32


def evaluated(layout: Layout, axis: int) -> np.ndarray:
    """What the C expressions of coordinates give: [thread, register]."""
    text = str(layout.coordinate(axis, "r", "t")).replace("/", "//")
    return np.array([[eval(text, {"t": t, "r": r}) for r in range(layout.count)] for t in range(128)])


@pytest.mark.parametrize("columns", [8, 64, 256])
def test_an_accumulator_is_the_fragment_d_of_the_isa(columns: int) -> None:
    # "Register Fragments for wgmma.mma_async.m64nNk16", matrix D: row and column of d_i in a warp's 16 rows.
    layout = registers.wgmma(64, columns)
    i = np.arange(columns // 2)
    row = WARP[:, None] * 16 + LANE[:, None] // 4 + 8 * (i // 2 % 2)
    column = i // 4 * 8 + LANE[:, None] % 4 * 2 + i % 2
    assert layout.count == columns // 2
    assert np.array_equal(layout.elements(), np.stack(np.broadcast_arrays(row, column), -1))


def test_a_left_operand_of_16_bits_is_the_fragment_a_of_the_isa() -> None:
    # Matrix A: a_0 … a_7, two in each of four registers.
    elements = registers.wgmma(64, 16).elements()
    i = np.arange(8)
    row = WARP[:, None] * 16 + LANE[:, None] // 4 + 8 * (i // 2 % 2)
    column = LANE[:, None] % 4 * 2 + i % 2 + 8 * (i // 4)
    assert np.array_equal(elements, np.stack(np.broadcast_arrays(row, column), -1))


def test_a_left_operand_of_8_bits_is_the_fragment_a_of_the_isa() -> None:
    # "Register Fragments for wgmma.mma_async.m64nNk32": a_0 … a_15, four in each of four registers.
    elements = registers.wgmma_left_8bit(64, 32).elements()
    i = np.arange(16)
    row = WARP[:, None] * 16 + LANE[:, None] // 4 + 8 * (i // 4 % 2)
    column = LANE[:, None] % 4 * 4 + i % 4 + 16 * (i // 8)
    assert np.array_equal(elements, np.stack(np.broadcast_arrays(row, column), -1))


def test_a_left_operand_of_32_bits_is_the_fragment_a_of_the_isa() -> None:
    # "Register Fragments for wgmma.mma_async.m64nNk8": a_0 … a_3.
    elements = registers.wgmma_left_32bit(64, 8).elements()
    i = np.arange(4)
    row = WARP[:, None] * 16 + LANE[:, None] // 4 + 8 * (i % 2)
    column = LANE[:, None] % 4 + 4 * (i // 2)
    assert np.array_equal(elements, np.stack(np.broadcast_arrays(row, column), -1))


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_a_right_operand_of_mma_is_the_fragment_b_of_the_isa(bits: int) -> None:
    # "Matrix Fragments for mma.m16n8k8" with .tf32, "... m16n8k16" with .f16, "... m16n8k32" with .s8: matrix B.
    packed = 32 // bits
    elements = registers.mma_right(8 * packed, 8, packed).elements()
    i = np.arange(2 * packed)
    row = LANE[:, None] % 4 * packed + i % packed + 4 * packed * (i // packed)
    column = LANE[:, None] // 4 + 0 * i
    assert np.array_equal(elements, np.stack(np.broadcast_arrays(row, column), -1))


WGMMA_TILES = plgpu.Layout.TILED(plgpu.Tiling(((64, 8), (16, 8), (8, 8), (2,))), (-7,), (-3, -2), -1)


def cast(layout: Any, *shape: int, dtype: Any = np.float32) -> Layout:
    """The layout that a kernel requests for an array of a shape."""
    found = requested(described_layout(layout), ArrayType(shape, np.dtype(dtype)))
    assert found is not None
    return found


def test_tiles_are_cut_from_the_last_axes() -> None:
    assert cast(WGMMA_TILES, 128, 24).same(registers.wgmma(128, 24))
    stack = cast(WGMMA_TILES, 3, 64, 8)
    np.testing.assert_array_equal(stack.elements()[..., 1:], np.tile(registers.wgmma(64, 8).elements(), (1, 3, 1)))
    assert stack.same(cast(plgpu.Layout.WGMMA, 3, 64, 8))


def test_a_reduced_request_is_the_layout_of_a_reduction() -> None:
    assert cast(WGMMA_TILES.reduce(1), 128).same(registers.wgmma(128, 8).reduced([1]))
    assert cast(plgpu.Layout.MMA_LHS(np.int8).reduce(0), 32).same(registers.wgmma_left_8bit(64, 32).reduced([0]))
    assert cast(plgpu.Layout.WGMMA_TRANSPOSED.reduce(0), 64).same(registers.wgmma(64, 8).transposed().reduced([0]))


def test_replicated_lanes_hold_the_same_elements() -> None:
    layout = plgpu.Layout.TILED(plgpu.Tiling(((4, 64), (1, 64), (4,))), (-5,), (plgpu.Replicated(2), -2), -1)
    elements = cast(layout, 4, 64).elements()
    np.testing.assert_array_equal(elements[:, 0], np.stack([WARP, LANE % 16 * 4], -1))
    assert elements.shape == (128, 4, 2)


REQUESTED = [
    cast(WGMMA_TILES, 2, 64, 16),
    cast(plgpu.Layout.MMA_LHS(np.float16), 64, 16),
    cast(plgpu.Layout.MMA_RHS(np.int8), 64, 24, dtype=np.int8),
    cast(plgpu.Layout.MMA_RHS, 16, 8),
    cast(plgpu.Layout.MMA_ACC(np.float16), 64, 8),
    cast(plgpu.Layout.WGMMA.reduce(0), 24),
]

ALL = [
    *REQUESTED,
    registers.wgmma(64, 32),
    registers.wgmma(128, 16),
    registers.wgmma_left_8bit(64, 64),
    registers.wgmma_left_32bit(64, 16),
    registers.warp((70,)),
    registers.warp((3, 40)),
    registers.strided((64, 32)),
    registers.strided((5, 7, 12), 4),
    registers.strided((3,)),
    registers.wgmma(64, 32).reduced([1]),
    registers.wgmma(128, 32).reduced([0]),
    registers.strided((8, 6)).reduced([0], keep=True),
]


@pytest.mark.parametrize("layout", ALL, ids=str)
def test_every_element_has_a_register(layout: Layout) -> None:
    elements = layout.elements().reshape(-1, len(layout.shape))
    inside = elements[(elements < layout.shape).all(1)]
    assert len(np.unique(inside, axis=0)) == np.prod(layout.shape)


@pytest.mark.parametrize("layout", ALL, ids=str)
def test_the_c_expressions_say_the_same(layout: Layout) -> None:
    for axis in range(len(layout.shape)):
        assert np.array_equal(evaluated(layout, axis), layout.elements()[:, :, axis])


@pytest.mark.parametrize("layout", ALL, ids=str)
def test_the_guard_tells_elements_from_nothing(layout: Layout) -> None:
    text = layout.guard("r", "t")
    inside = (layout.elements() < layout.shape).all(-1)
    for t, r in ((0, 0), (127, layout.count - 1), (77, layout.count // 2)):
        said = True if text is None else eval(text.replace("/", "//").replace("&&", "and"), {"t": t, "r": r})
        assert said == inside[t, r]


@pytest.mark.parametrize("axes", [[0], [1]])
@pytest.mark.parametrize("layout", [registers.wgmma(128, 24), registers.strided((20, 12), 4)], ids=str)
def test_a_reduction_stays_where_its_terms_are(layout: Layout, axes: list[int]) -> None:
    reduced = layout.reduced(axes)
    text = layout.projected(axes, "r").replace("/", "//")
    kept = [axis for axis in range(2) if axis not in axes]
    for r in range(layout.count):
        target = eval(text, {"r": r})
        assert np.array_equal(reduced.elements()[:, target], layout.elements()[:, r][:, kept])


def test_threads_that_hold_the_same_choose_a_first_one() -> None:
    layout = registers.wgmma(64, 8).reduced([1])
    text = layout.first_holder("t")
    first = [t for t in range(128) if eval(text.replace("/", "//"), {"t": t})]
    assert sorted(layout.elements()[first].reshape(-1)) == list(range(64))


def test_neighbours_along_the_last_axis_are_vectors() -> None:
    assert registers.wgmma(64, 8).vector() == 2
    assert registers.strided((4, 64), 4).vector() == 4
    assert registers.warp((64,)).vector() == 1


def test_layouts_are_compared_by_what_they_do() -> None:
    assert registers.strided((128,)).same(registers.strided((128,), 1))
    assert not registers.strided((64, 32)).same(registers.wgmma(64, 32))


def test_every_lane_holds_the_only_element_of_an_axis() -> None:
    assert (registers.warp((1,)).elements() == 0).all()
    assert registers.warp((1,)).same(registers.strided((1, 256), 8).reduced([1]))


def test_a_transposed_fragment_has_its_axes_exchanged() -> None:
    layout = registers.wgmma(64, 24)
    assert layout.transposed().shape == (24, 64)
    np.testing.assert_array_equal(layout.transposed().elements(), layout.elements()[..., ::-1])
    assert layout.transposed().transposed().same(layout)
