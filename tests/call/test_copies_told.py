"""Copies on the way into a kernel and out of it: none for dense arrays, and a knob reports the others."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy
import numpy as np
import pytest
import torch

import palladio as pl
from palladio import library
from palladio.array.foreign import to_numpy

SHAPE = (64, 32)
X = np.arange(64 * 32, dtype=np.float32).reshape(SHAPE)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_WARN_COPIES", "1")


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + x_ref[...]


def overwrite(x_ref: Any, o_ref: Any) -> None:
    x_ref[...] = x_ref[...] + x_ref[...]
    o_ref[...] = x_ref[...]


def called(x: Any, kernel: Any = double, shape: Any = SHAPE) -> Any:
    return pl.pallas_call(kernel, pl.ShapeDtypeStruct(shape, np.float32), interpret="cpu")(x)


class Foreign:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("make", [Foreign, torch.from_numpy, lambda x: torch.from_numpy(x).requires_grad_().detach()])
def test_dense_arrays_come_in_without_a_copy(make: Any) -> None:
    assert np.shares_memory(to_numpy(make(X), "x"), X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(np.asarray(called(make(X))), X + X)


def test_arrays_of_jax_come_in_without_a_copy() -> None:
    x = jax.numpy.asarray(X)
    assert to_numpy(x, "x").__array_interface__["data"][0] == x.unsafe_buffer_pointer()


def test_results_go_out_by_dlpack_without_a_copy() -> None:
    found = called(X)
    assert np.shares_memory(np.from_dlpack(found), found)
    assert torch.from_dlpack(found).data_ptr() == found.__array_interface__["data"][0]
    tensor = called(torch.from_numpy(X))
    assert np.from_dlpack(tensor).__array_interface__["data"][0] == tensor.data_ptr()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: called(X.T, shape=SHAPE[::-1]),
            "8,192 bytes are copied: compiled kernels take arrays in row-major order\n"
            "  got:      float32[32, 64], strides (4, 128)\n"
            "  hint:     np.ascontiguousarray(array) copies it once",
        ),
        (
            lambda: called(X.astype(">f4")),
            "8,192 bytes are copied: kernels take arrays in the byte order of this machine\n"
            "  got:      >f4[64, 32]\n"
            '  hint:     array.astype(array.dtype.newbyteorder("=")) copies it once',
        ),
        (
            lambda: called(X, overwrite),
            "8,192 bytes are copied: the kernel writes this input\n"
            "  got:      float32[64, 32]\n"
            "  hint:     input_output_aliases, or an output of its own, takes what it writes",
        ),
        (
            lambda: called(jax.numpy.asarray(X)),
            "8,192 bytes are copied: a result goes to JAX\n"
            "  got:      float32[64, 32]\n"
            "  hint:     palladio.interop.jax writes results to JAX's own memory",
        ),
    ],
    ids=["strides", "byte order", "written", "to JAX"],
)
def test_a_copy_of_more_than_a_page_is_told_of_at_the_users_line(call: Any, message: str) -> None:
    with pytest.warns(pl.CopyWarning) as caught:
        call()
    assert [str(each.message) for each in caught] == [message]
    assert caught[0].filename == __file__


def test_neither_small_copies_nor_an_unset_knob_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        called(X[:8].T, shape=(32, 8))
        monkeypatch.delenv("PALLADIO_WARN_COPIES")
        called(X.T, shape=SHAPE[::-1])


# The library.

Q = np.arange(2 * 33 * 64, dtype=np.float32).reshape(2, 33, 64) / 1e3
"""Heads that no kernel is kept for the number of queries of."""


def heads(x: Any) -> Any:
    """Heads beside each other in the columns, as a projection leaves them."""
    return torch.from_numpy(np.ascontiguousarray(x.transpose(1, 0, 2))).transpose(0, 1)


LIBRARY: dict[str, tuple[Any, list[str]]] = {
    "dense": (lambda: library.softmax(X), []),
    "rows apart": (lambda: library.softmax(Q[:, :32:2]), ["leading axes become one, which their strides do not allow"]),
    "heads": (
        lambda: library.attention(*map(heads, (Q[:, :32],) * 3)),
        [*["leading axes become one"] * 2, "arrays in row-major order"],
    ),
    "queries": (lambda: library.attention(Q, Q, Q), ["33 queries become "]),
    "norm": (lambda: library.rms_norm(Q[:, :32:2], Q[0, 0]), ["leading axes become one"]),
    "negated": (
        lambda: library.softmax(torch.complex(torch.ones(64, 32), torch.ones(64, 32)).conj().imag),
        ["the tensor is negated when it is read"],
    ),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_tells_of_its_copies(name: str) -> None:
    call, expected = LIBRARY[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    told = [str(each.message) for each in caught]
    assert len(told) == len(expected), told
    assert all(message in text for message, text in zip(expected, told, strict=True))
    assert {each.filename for each in caught} <= {__file__}


def test_users_tell_of_their_own_copies() -> None:
    with pytest.warns(pl.CopyWarning, match="8,192 bytes are copied: rows are sorted\n  got:      float32") as caught:
        pl.note_copy(torch.from_numpy(X), "rows are sorted", "sort them before")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pl.note_copy(X, "rows are sorted", "sort them before", made=X.reshape(-1))
        pl.note_copy(X[:8], "rows are sorted", "sort them before")
