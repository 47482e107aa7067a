"""Arrays in and out: what a call takes, what it leaves alone, and what comes back."""

from __future__ import annotations

import contextlib
from typing import Any

import jax.numpy
import numpy as np
import pytest
import torch

import palladio as pl
import palladio.numpy as jnp
from palladio.types import dtypes

OUT = pl.ShapeDtypeStruct((2, 3), np.float32)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
TORCH = [str(dtype) for dtype in dtypes.ALL]
JAX = [str(dtype) for dtype in dtypes.ALL if dtype.itemsize < 8]


def copy(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...]


def copied(x: Any, dtype: Any = np.float32, shape: tuple[int, ...] = (2, 3)) -> Any:
    return pl.pallas_call(copy, pl.ShapeDtypeStruct(shape, dtype))(x)


def overwrite(x_ref: Any, o_ref: Any) -> None:
    x_ref[...] = x_ref[...] + 1
    o_ref[...] = x_ref[...]


# NumPy.


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=dtypes.short_name)
def test_numpy_arrays_of_every_dtype(dtype: np.dtype) -> None:
    x = X.astype(dtype)
    result = copied(x, dtype)
    assert type(result) is np.ndarray
    assert result.dtype == dtype
    assert result.tobytes() == x.tobytes()


def test_results_are_the_callers_own() -> None:
    result = copied(X)
    assert result.flags.writeable
    assert result.flags.owndata
    assert not np.shares_memory(result, X)


def test_a_kernel_that_writes_its_input_leaves_the_callers_array() -> None:
    x = np.array(X)
    assert pl.pallas_call(overwrite, OUT)(x).tolist() == (X + 1).tolist()
    assert x.tolist() == X.tolist()


def test_steps_see_what_earlier_ones_wrote_to_an_input() -> None:
    result = pl.pallas_call(overwrite, OUT, grid=(3,))(X)
    assert result.tolist() == (X + 3).tolist()


@pytest.mark.parametrize("kernel", [copy, overwrite])
def test_read_only_arrays(kernel: Any) -> None:
    x = np.array(X)
    x.flags.writeable = False
    assert pl.pallas_call(kernel, OUT)(x).tolist() == (X + (kernel is overwrite)).tolist()


@pytest.mark.parametrize(
    "x",
    [
        np.asfortranarray(X),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2] / 2,
        X[::-1, ::-1][::-1, ::-1],
        np.broadcast_to(np.arange(3, dtype=np.float32), (2, 3)),
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
    ],
    ids=["Fortran order", "strided", "reversed", "broadcast", "unaligned"],
)
def test_memory_of_any_layout(x: np.ndarray) -> None:
    spec = pl.BlockSpec((1, 2), lambda i, j: (i, j))
    call = pl.pallas_call(copy, OUT, grid=(2, 2), in_specs=[spec], out_specs=spec)
    np.testing.assert_array_equal(call(x), x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint64"])
def test_arrays_of_the_other_byte_order(dtype: str) -> None:
    x = X.astype(dtype)
    result = copied(x.astype(x.dtype.newbyteorder()), dtype)
    assert result.dtype.isnative
    np.testing.assert_array_equal(result, x)


def test_an_output_described_in_the_other_byte_order_is_native() -> None:
    assert copied(X, np.dtype(">f4")).dtype == np.float32


def test_subclasses_of_arrays_are_arrays() -> None:
    class Tagged(np.ndarray):
        pass

    result = copied(X.view(Tagged))
    assert type(result) is np.ndarray
    assert result.tolist() == X.tolist()


@pytest.mark.parametrize(
    ("scalar", "dtype"),
    [
        (2.5, np.float32),
        (7, np.int32),
        (True, np.bool_),
        (np.float32(2.5), np.float32),
        (np.int8(7), np.int8),
        (np.float64(2.5), np.float32),
        (np.array(2.5), np.float64),
    ],
    ids=repr,
)
def test_scalars(scalar: Any, dtype: Any) -> None:
    result = copied(scalar, dtype, ())
    assert (result.shape, result.dtype) == ((), dtype)
    assert result == scalar


@pytest.mark.parametrize("number", [2**40, np.int64(2**40)])
def test_a_bare_integer_that_is_no_int32_is_refused(number: Any) -> None:
    with pytest.raises(pl.PalladioValueError, match="cannot hold") as raised:
        copied(number, np.int32, ())
    assert raised.value.argument == "args[0] (x_ref)"


# PyTorch.


def torch_of(name: str) -> torch.Tensor:
    return torch.arange(6).reshape(2, 3).to(getattr(torch, name))


@pytest.mark.parametrize("name", TORCH)
def test_tensors_of_every_dtype(name: str) -> None:
    x = torch_of(name)
    result = copied(x, x.dtype)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == x.dtype
    assert result.float().tolist() == x.float().tolist()
    assert result.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("name", TORCH)
def test_transposed_tensors(name: str) -> None:
    x = torch_of(name).T
    assert copied(x, x.dtype, (3, 2)).float().tolist() == x.float().tolist()


@pytest.mark.parametrize("name", TORCH)
def test_tensors_without_axes(name: str) -> None:
    x = torch_of(name)[0, 1]
    result = copied(x, x.dtype, ())
    assert (tuple(result.shape), float(result)) == ((), 1.0)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2"])
def test_tensors_without_elements(name: str) -> None:
    x = torch_of(name)[:, :0]
    assert tuple(copied(x, x.dtype, (2, 0)).shape) == (2, 0)


def test_tensors_that_came_back_can_be_written() -> None:
    x = torch_of("float32")
    result = copied(x)
    result += 1
    assert x.tolist() == X.tolist()


def test_a_kernel_that_writes_its_input_leaves_the_tensor() -> None:
    x = torch_of("float32")
    assert pl.pallas_call(overwrite, OUT)(x).tolist() == (X + 1).tolist()
    assert x.tolist() == X.tolist()


def test_views_with_a_lazy_sign() -> None:
    x = torch.tensor([[1j]]).conj().imag
    assert x.is_neg()
    assert copied(x, np.float32, (1, 1)).tolist() == [[-1.0]]


def test_parameters_are_tensors() -> None:
    with torch.no_grad():
        result = copied(torch.nn.Parameter(torch_of("float32")))
    assert isinstance(result, torch.Tensor)
    assert not result.requires_grad


# JAX.


@pytest.mark.parametrize("name", JAX)
def test_jax_arrays_of_every_dtype(name: str) -> None:
    x = jax.numpy.arange(6).reshape(2, 3).astype(name)
    result = copied(x, x.dtype)
    assert isinstance(result, jax.Array)
    assert result.dtype == x.dtype
    assert np.asarray(result).tobytes() == np.asarray(x).tobytes()


def test_a_jax_result_of_64_bits_keeps_them() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...].astype(np.int64) << 40

    result = pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 3), np.int64))(jax.numpy.arange(6).reshape(2, 3))
    assert isinstance(result, jax.Array)
    assert np.asarray(result).tolist() == (np.arange(6).reshape(2, 3) << 40).tolist()


def test_a_kernel_that_writes_its_input_leaves_the_jax_array() -> None:
    x = jax.numpy.asarray(X)
    assert pl.pallas_call(overwrite, OUT)(x).tolist() == (X + 1).tolist()
    assert x.tolist() == X.tolist()


# Everything else, and mixtures.


class WithArray:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


class WithDlpack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Pinned(WithDlpack):
    """Memory of the host that is pinned for a card: `kDLCUDAHost`."""

    def __dlpack_device__(self) -> Any:
        return 3, 0


@pytest.mark.parametrize("kind", [WithArray, WithDlpack, Pinned])
def test_whatever_speaks_a_protocol_of_arrays(kind: Any) -> None:
    result = copied(kind(np.array(X)))
    assert type(result) is np.ndarray
    assert result.tolist() == X.tolist()


def add(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + y_ref[...]


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        ((X, torch_of("float32")), torch.Tensor),
        ((jax.numpy.asarray(X), X), jax.Array),
        ((jax.numpy.asarray(X), torch_of("float32")), jax.Array),
        ((torch_of("float32"), jax.numpy.asarray(X)), torch.Tensor),
        ((torch_of("float32"), 1.0), torch.Tensor),
        ((X, WithArray(X)), np.ndarray),
    ],
)
def test_results_are_of_the_kind_of_the_first_argument_that_is_not_numpy(others: Any, kind: type) -> None:
    result = pl.pallas_call(add, OUT)(*others)
    assert isinstance(result, kind)
    assert result.tolist() == (X + np.asarray(others[1])).tolist()


def test_pytrees_of_results_are_all_of_the_kind() -> None:
    def kernel(x: Any, out: Any) -> None:
        out["a"][...] = x["x"][...]
        out["b"][0][...] = x["y"][...]

    result = pl.pallas_call(kernel, {"a": OUT, "b": [OUT]})({"x": X, "y": torch_of("float32")})
    assert isinstance(result["a"], torch.Tensor)
    assert isinstance(result["b"][0], torch.Tensor)


def test_kinds_share_one_preparation() -> None:
    from palladio.call.staged import CALLS

    call = pl.pallas_call(copy, OUT)
    call(X)
    before = CALLS.prepared
    call(torch_of("float32"))
    call(jax.numpy.asarray(X))
    assert CALLS.prepared == before


def test_with_torch_dtypes_described() -> None:
    assert copied(X.astype(dtypes.BFLOAT16), torch.bfloat16).dtype == dtypes.BFLOAT16


def test_a_number_that_overflows_is_infinite_even_where_the_caller_makes_overflow_an_error() -> None:
    with np.errstate(all="raise"):
        result = pl.jit(lambda x, y: x.astype(np.float16) + y)(np.float32(1), 1e300)
        assert jnp.asarray(1e300, np.float32) == np.inf
    assert result == np.inf


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("level", [contextlib.nullcontext, torch.autograd.forward_ad.dual_level])
def test_nested_tensors_are_refused(layout: torch.layout, level: Any) -> None:
    nested = torch.nested.as_nested_tensor([torch.ones(3), torch.ones(2)], layout=layout)
    text = r"the tensor is not dense\n  got:      a nested tensor\n  hint:     tensor.unbind\(\)"
    with level(), pytest.raises(pl.PalladioTypeError, match=text):
        copied(nested)
