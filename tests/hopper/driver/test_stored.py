"""A kernel of the library that is on disk is neither traced nor compiled, in any process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio.base import stored_keys
from palladio.call import jit
from palladio.hopper import compile as nvrtc
from palladio.hopper.launch import stored
from palladio.library import hopper
from palladio.library.hopper import kept as kept_calls
from palladio.types.types import ArrayType
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.stand_ins import Torch, numpy_of
from tests.hopper.kernels import BF16, F32, error, normal

pytestmark = pytest.mark.usefixtures("known_kernels")
X, Y = normal(64, 64), normal(64, 96)
OPTIONS = {"preferred_element_type": np.float32}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def anew() -> None:
    """As in another process: nothing is kept in this one."""
    kept_calls._KEPT.clear()
    forget()


def forget() -> None:
    stored._compilers.cache_clear()
    stored_keys.sources.cache_clear()


def product(cuda: Torch, **options: Any) -> np.ndarray:
    return numpy_of(hopper.matmul(cuda.tensor(X), cuda.tensor(Y), **options))


def fails(*_: Any, **__: Any) -> Any:
    raise AssertionError("traced or compiled")


def test_a_stored_kernel_is_neither_traced_nor_compiled(
    folder: Path, card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = product(cuda, **OPTIONS)
    anew()
    monkeypatch.setattr(jit, "_stage", fails)
    monkeypatch.setattr(nvrtc, "_library", fails)
    np.testing.assert_array_equal(product(cuda, **OPTIONS), first)
    assert error(first, X.astype(np.float64) @ Y.astype(np.float64)) < 1e-6
    with pytest.raises(AssertionError, match="traced"):
        product(cuda, preferred_element_type=BF16)
    assert not card.failures


@pytest.mark.parametrize("aliased", [False, True])
def test_a_kernel_whose_data_are_checked_at_each_call_is_not_stored(
    folder: Path, card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, aliased: bool
) -> None:
    def add_one(x: Any, out: Any) -> None:
        out[...] = x[...] + 1

    kind = pl.ShapeDtypeStruct((4, 32), F32)
    x = cuda.tensor(np.zeros((4, 32), F32))

    def call() -> np.ndarray:
        kernel = pl.pallas_call(add_one, kind, input_output_aliases={0: 0} if aliased else {})
        return numpy_of(pl.jit(kernel).ahead(x, made_of=("add_one", aliased))(x))

    assert np.array_equal(call(), np.ones((4, 32), F32))
    anew()
    monkeypatch.setattr(jit, "_stage", fails)
    if not aliased:
        assert np.array_equal(call(), np.ones((4, 32), F32))
        return
    with pytest.raises(AssertionError, match="traced"):
        call()


@pytest.mark.parametrize("change", ["sources", "card", "damage"])
def test_it_is_made_again_where_something_else_is_requested(
    folder: Path, card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    product(cuda, **OPTIONS)
    anew()
    if change == "sources":
        monkeypatch.setattr(stored_keys, "facts", lambda path: (1, 2))
    elif change == "card":
        monkeypatch.setattr("palladio.gpu.multiprocessors", lambda: 100)
    else:
        for path in folder.iterdir():
            path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(jit, "_stage", fails)
    with pytest.raises(AssertionError, match="traced"):
        product(cuda, **OPTIONS)


def test_sources_that_changed_while_they_run_name_no_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    newest = max(
        path.stat().st_mtime_ns for path in map(Path, stored_keys._files(stored_keys.PACKAGE, stored._ELSEWHERE))
    )
    for imported, named in ((newest + 1, True), (newest, False)):
        monkeypatch.setattr(stored_keys, "IMPORTED_NS", imported)
        forget()
        assert (stored.key("f", []) is not None) == named
    forget()


def test_a_compiler_without_a_wheel_is_known_by_its_version(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_COMPILERS", ())
    keys = set()
    for version in ((12, 8), (13, 0)):
        monkeypatch.setattr(nvrtc, "version", lambda version=version: version)
        forget()
        keys.add(stored.key("f", []))
    forget()
    assert len(keys) == 2


def test_only_plain_values_name_a_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    types = [ArrayType((2,), F32)]
    assert stored.key(("f", 1, hopper.MatmulConfig(), F32, BF16.type), types) is not None
    assert len({stored.key(part, types) for part in (1, 1.0, True, "1", None, (1,), F32, np.float32)}) == 8
    assert stored.key(("f", object()), types) is None
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    assert stored.key("f", types) is None
