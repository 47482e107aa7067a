"""Buffers in shared memory against the pictures of the PTX ISA."""

from __future__ import annotations

import numpy as np
import pytest

from palladio.hopper.layouts.shared import SharedLayout, SharedOperand, swizzle_for, swizzled, swizzled_text


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_swizzle_permutes_16_byte_pieces_within_its_rows(swizzle: int) -> None:
    # "Tensor swizzling modes": a pattern of 8 rows of 128 bytes; the piece of a row is exchanged by the number of the
    # 128-byte line, of which there are swizzle / 16 before the pattern repeats.
    address = np.arange(0, 1024, 16)
    line, piece = address // 128, address // 16 % 8
    pieces = swizzle // 16
    expected = line * 128 + (piece ^ (line % pieces)) * 16
    assert np.array_equal(swizzled(address, swizzle), expected)
    assert np.array_equal(np.sort(swizzled(address, swizzle)), address)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("shape", [(16, 128), (3, 8, 64), (2, 2, 8, 64)])
def test_every_element_has_its_bytes(shape: tuple[int, ...], swizzle: int) -> None:
    layout = SharedLayout(shape, 2, swizzle)
    assert sorted(layout.addresses().reshape(-1)) == list(range(0, layout.bytes, 2))


@pytest.mark.parametrize(
    "layout", [SharedLayout((2, 16, 128), 2, 128), SharedLayout((8, 64), 4), SharedLayout((7,), 4)]
)
def test_the_c_expression_says_the_same(layout: SharedLayout) -> None:
    addresses = layout.addresses(1024)
    for place in np.ndindex(layout.shape):
        if sum(place) % 5 == 0:
            byte = 1024 + eval(layout.offset([str(index) for index in place]).replace("/", "//"))
            assert eval(swizzled_text("byte", layout.swizzle), {"byte": byte}) == addresses[place]


def test_columns_take_the_widest_swizzle_that_divides_them() -> None:
    assert [swizzle_for(columns, 2) for columns in (256, 64, 32, 16, 24)] == [128, 128, 64, 32, 0]


def canonical(operand: SharedOperand, rows: int, depth: int, swizzle: int) -> np.ndarray:
    """Where the tensor cores look for element [row, k] of a product: the canonical layouts of the ISA."""
    itemsize, span = operand.layout.itemsize, operand.layout.span
    row, k = np.indices((rows, depth))
    if operand.transposed:  # rows along m or n: k in groups of 8, m or n in rows of a swizzle
        byte = row // span * operand.leading + row % span * itemsize + k % 8 * swizzle + k // 8 * operand.stride
    else:
        byte = row % 8 * swizzle + row // 8 * operand.stride + k * itemsize
    return swizzled(byte, swizzle)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("columns", [64, 128])
def test_an_operand_with_k_innermost_is_where_its_descriptor_says(columns: int, swizzle: int) -> None:
    layout = SharedLayout((64, columns), 2, swizzle)
    operand = SharedOperand(layout, transposed=False)
    for step in range(0, columns, 16):
        wanted = layout.addresses()[:, step : step + 16]
        start = operand.step(step)
        # The descriptor's start moves inside a swizzled row; the swizzle goes by the address that results.
        row, k = np.indices((64, 16))
        byte = start + row % 8 * swizzle + row // 8 * operand.stride + k * 2
        assert np.array_equal(swizzled(byte, swizzle), wanted)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("columns", [64, 256])
def test_an_operand_with_n_innermost_is_where_its_descriptor_says(columns: int, swizzle: int) -> None:
    layout = SharedLayout((64, columns), 2, swizzle)
    operand = SharedOperand(layout, transposed=True)
    for step in range(0, 64, 16):
        wanted = layout.addresses()[step : step + 16].T
        assert np.array_equal(canonical(operand, columns, 16, swizzle) + operand.step(step), wanted)
