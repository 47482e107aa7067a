"""`call(x, out=buffer)`: results in arrays that the caller has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
import palladio.numpy as jnp

X = np.arange(4, dtype=np.float32)
OUT = pl.ShapeDtypeStruct((4,), np.float32)
HALF = pl.BlockSpec((2,), lambda i: (i,))

pytestmark = pytest.mark.parametrize("executor", ["reference", "cpu"])


def double(x: Any, o: Any) -> None:
    o[...] = x[...] * 2


def doubled(executor: str, **options: Any) -> Any:
    return pl.pallas_call(double, OUT, grid=(2,), in_specs=[HALF], out_specs=HALF, interpret=executor, **options)


def empty() -> np.ndarray[Any, Any]:
    return np.full(4, -1, np.float32)


def test_the_array_holds_the_result_and_is_returned(executor: str) -> None:
    buffer = empty()
    assert doubled(executor)(X, out=buffer) is buffer
    assert buffer.tolist() == [0, 2, 4, 6]


def test_a_buffer_serves_again(executor: str) -> None:
    buffer, call = empty(), doubled(executor)
    for factor in (1, 10):
        call(X * factor, out=buffer)
        assert buffer.tolist() == (X * factor * 2).tolist()


def test_what_the_kernel_does_not_write_is_uninitialised(executor: str) -> None:
    def first(x: Any, o: Any) -> None:
        o[0] = x[0]

    buffer = pl.pallas_call(first, OUT, interpret=executor)(X + 7, out=empty())
    assert buffer[0] == 7
    assert np.isnan(buffer[1:]).all()


def test_a_tree_of_buffers_is_filled(executor: str) -> None:
    def both(x: Any, a: Any, rest: Any) -> None:
        a[...] = x[...]
        rest["b"][...] = -x[...]

    shapes = (OUT, {"b": OUT})
    buffers = (empty(), {"b": empty()})
    assert pl.pallas_call(both, shapes, interpret=executor)(X, out=buffers) is buffers
    assert (buffers[0].tolist(), buffers[1]["b"].tolist()) == (X.tolist(), (-X).tolist())


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_buffers_is_filled(executor: str, kind: type) -> None:
    def both(x: Any, a: Any, b: Any) -> None:
        a[...], b[...] = x[...], -x[...]

    buffers = kind([empty(), empty()])
    assert pl.pallas_call(both, [OUT, OUT], interpret=executor)(X, out=buffers) is buffers
    assert [each.tolist() for each in buffers] == [X.tolist(), (-X).tolist()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_is_written_in_place(executor: str, dtype: torch.dtype) -> None:
    buffer = torch.zeros(4, dtype=dtype)
    x = torch.arange(4).to(dtype)
    call = pl.pallas_call(double, pl.ShapeDtypeStruct((4,), dtype), interpret=executor)
    assert call(x, out=buffer) is buffer
    assert buffer.tolist() == [0, 2, 4, 6]


def test_a_part_of_an_array_is_written(executor: str) -> None:
    whole = np.full((3, 4), -1, np.float32)
    doubled(executor)(X, out=whole[1])
    assert whole.tolist() == [[-1] * 4, [0, 2, 4, 6], [-1] * 4]


def test_an_aliased_input_may_be_its_own_output(executor: str) -> None:
    x = X.copy()
    assert doubled(executor, input_output_aliases={0: 0})(x, out=x) is x
    assert x.tolist() == [0, 2, 4, 6]


def test_an_aliased_input_keeps_its_values_while_the_kernel_reads_it(executor: str) -> None:
    def shifted(x: Any, o: Any) -> None:
        for n in range(4):
            o[n] = x[(n - 1) % 4]

    x = X.copy()
    pl.pallas_call(shifted, OUT, input_output_aliases={0: 0}, interpret=executor)(x, out=x)
    assert x.tolist() == [3, 0, 1, 2]


def test_an_output_that_starts_as_its_input_starts_so_in_a_buffer(executor: str) -> None:
    def first(x: Any, o: Any) -> None:
        o[0] = np.float32(9)

    call = pl.pallas_call(first, OUT, input_output_aliases={0: 0}, interpret=executor)
    assert call(X, out=empty()).tolist() == [9, 1, 2, 3]
    assert X.tolist() == [0, 1, 2, 3]


READ_ONLY = empty()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "error", "rule"),
    [
        ([empty()], pl.PalladioTypeError, "out: has another structure than out_shape"),
        (1.0, pl.PalladioTypeError, "out: results are written to NumPy arrays and PyTorch tensors"),
        (np.zeros(4), pl.PalladioTypeError, "out: not the dtype of the output"),
        (np.zeros(4, ">f4"), pl.PalladioTypeError, "out: not the dtype of the output"),
        (np.zeros(5, np.float32), pl.PalladioValueError, "out: not the shape of the output"),
        (READ_ONLY, pl.PalladioValueError, "out: the array is read-only"),
        (np.zeros(8, np.float32)[::2], pl.PalladioValueError, "out: the array is not in row-major order without gaps"),
    ],
    ids=["structure", "number", "dtype", "byte-order", "shape", "read-only", "gaps"],
)
def test_what_cannot_hold_the_result_is_refused(executor: str, out: Any, error: type[Exception], rule: str) -> None:
    with pytest.raises(error) as found:
        doubled(executor)(X, out=out)
    assert str(found.value).startswith(rule)
    assert "doubled(executor)(X, out=out)" in str(found.value)


def test_a_buffer_that_overlaps_an_input_is_refused(executor: str) -> None:
    memory = np.arange(6, dtype=np.float32)
    with pytest.raises(pl.PalladioValueError, match="out: overlaps an input") as found:
        doubled(executor)(memory[:4], out=memory[2:])
    assert "memory of input 0" in str(found.value)
    assert memory.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_buffer_that_overlaps_its_aliased_input_in_part_is_refused(executor: str) -> None:
    memory = np.arange(6, dtype=np.float32)
    with pytest.raises(pl.PalladioValueError, match="overlaps the input that it aliases, but is not the same array"):
        doubled(executor, input_output_aliases={0: 0})(memory[:4], out=memory[2:])


def test_buffers_between_the_elements_of_an_input_do_not_overlap_it(executor: str) -> None:
    memory = np.arange(8, dtype=np.float32).reshape(2, 4)
    doubled(executor)(memory.T[:, 0], out=memory[1])
    assert memory[1].tolist() == [0, 2, 4, 6]


def test_two_outputs_in_one_memory_are_refused(executor: str) -> None:
    def both(x: Any, a: Any, b: Any) -> None:
        a[...] = b[...] = x[...]

    buffer = empty()
    with pytest.raises(pl.PalladioValueError, match=r"out\[1\]: overlaps another output") as found:
        pl.pallas_call(both, (OUT, OUT), interpret=executor)(X, out=(buffer, buffer))
    assert "memory of out[0]" in str(found.value)


def test_a_call_on_traced_values_takes_no_buffer(executor: str) -> None:
    call = doubled(executor)
    with pytest.raises(pl.PalladioTypeError, match="a call on traced values has no arrays to write to"):
        pl.jit(lambda x: call(x, out=empty()), interpret=executor)(X)


def test_a_buffer_that_overlaps_an_input_is_refused_of_fewer_rows_too(executor: str) -> None:
    staged = pl.jit(lambda x: jnp.flip(x, 0), interpret=executor).ahead(pl.ShapeDtypeStruct((8, 3), np.float32))
    for rows in (8, 5):
        x = np.ones((rows, 3), np.float32)
        with pytest.raises(pl.PalladioValueError, match="out: overlaps an input"):
            staged(x, out=x, rows=rows)
        found = staged(x, out=np.empty_like(x), rows=rows)
        np.testing.assert_array_equal(found, x if rows == 8 else [[0] * 3] * 3 + [[1] * 3] * 2)
