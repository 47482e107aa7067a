"""Products of transposed views of tensors: taken in place, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from palladio import library
from palladio.library import hopper
from palladio.library.hopper import MatmulConfig
from palladio.library.hopper.limits import as_in_memory
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.stand_ins import Torch, numpy_of
from tests.hopper.driver.test_exchanged import host_is_card, launches, longer  # noqa: F401
from tests.hopper.driver.test_namesakes import CAPTURABLE, grouped, wide
from tests.hopper.driver.test_rows import compiles_no_more
from tests.hopper.kernels import F32, error, normal

pytestmark = pytest.mark.usefixtures("known_kernels")
M, K, N = 104, 64, 96
SIZES = np.int32([30, 0, 70])


def summed(lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """`tgmm` of the transpose of `lhs[m, k]`."""
    ends = np.cumsum(SIZES)
    return np.stack([wide(lhs[e - s : e]).T @ wide(rhs[e - s : e]) for e, s in zip(ends, SIZES, strict=True)])


def cases(to: Callable[[np.ndarray], Any]) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], np.ndarray]]:
    """Functions, their arguments, transposed views among them, and what they return."""
    x, y, columns, row_major = normal(M, K), normal(K, N), normal(K, M), normal(N, K)
    matrices, rows, sizes = normal(3, N, K), normal(M, N), to(SIZES)
    return {
        "x w.T": (library.matmul, (to(x), to(row_major).t()), wide(x) @ wide(row_major).T),
        "x.T y": (library.matmul, (to(columns).t(), to(y)), wide(columns).T @ wide(y)),
        "both": (library.matmul, (to(columns).t(), to(row_major).t()), wide(columns).T @ wide(row_major).T),
        "twice": (_right_transposed, (to(x), to(y).t()), wide(x) @ wide(y)),
        "gmm": (
            library.gmm,
            (to(x), to(matrices).transpose(1, 2), sizes),
            grouped(x, matrices.swapaxes(1, 2), SIZES),
        ),
        "tgmm": (library.tgmm, (to(x).T, to(rows), sizes), summed(x, rows)),
    }


def _right_transposed(x: Any, y: Any, **options: Any) -> Any:
    return hopper.matmul(x, y, transpose_rhs=True, **options)


NAMES = ["x w.T", "x.T y", "both", "twice", "gmm", "tgmm"]


@pytest.mark.parametrize("name", NAMES)
def test_views_are_taken_in_place(name: str, card: FakeDriver, cuda: Torch) -> None:
    call, given, wanted = cases(cuda.tensor)[name]
    for _ in range(2):
        call(*given)
    card.calls()
    made = cuda.allocated
    result = call(*given)
    called = [line.partition(" ")[0] for line in card.calls()]
    assert called.count("cuLaunchKernelEx") == 1 and set(called) <= CAPTURABLE and not card.failures
    assert cuda.allocated == made + 1, "the result alone"
    assert error(numpy_of(result), wanted) < 5e-3


@pytest.mark.usefixtures("host_is_card")
@pytest.mark.parametrize("name", NAMES)
def test_a_later_call_is_one_function(name: str, card: FakeDriver, longer: list[Any]) -> None:  # noqa: F811
    def tensor(array: np.ndarray) -> torch.Tensor:
        plain = torch.from_numpy(array.astype(array.dtype if array.dtype == np.int32 else F32))
        return plain if array.dtype == np.int32 else plain.bfloat16()

    call, given, wanted = cases(tensor)[name]
    for _ in range(2):
        call(*given)
    longer.clear()
    card.calls()
    results = [call(*given), call(*given, out=torch.zeros(wanted.shape, dtype=torch.bfloat16))]
    assert launches(card) == 2 and not longer and not card.failures
    assert all(error(numpy_of(each), wanted) < 5e-3 for each in results)


def test_views_and_dense_matrices_in_turns(card: FakeDriver, cuda: Torch) -> None:
    x, square, other = normal(M, K), normal(K, K), normal(K, K, seed=1)
    for matrix, turned in ((square, False), (square, True), (other, False), (other, True)):
        given = cuda.tensor(matrix)
        for _ in range(2):
            result = library.matmul(cuda.tensor(x), given.t() if turned else given)
            assert error(numpy_of(result), wide(x) @ wide(matrix.T if turned else matrix)) < 5e-3
    assert not card.failures


def test_numbers_of_rows_share_a_kernel(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    y, matrices = normal(K, N), normal(2, N, K)

    def right(m: int) -> None:
        columns, lhs, rows, sizes = normal(K, m), normal(m, K), normal(m, N), np.int32([m - 20, 20])
        found = hopper.matmul(cuda.tensor(columns).t(), cuda.tensor(y))
        assert error(numpy_of(found), wide(columns).T @ wide(y)) < 5e-3
        found = hopper.gmm(cuda.tensor(lhs), cuda.tensor(matrices).mT, cuda.tensor(sizes))
        assert error(numpy_of(found), grouped(lhs, matrices.swapaxes(1, 2), sizes)) < 5e-3
        found = hopper.tgmm(cuda.tensor(lhs).T, cuda.tensor(rows), cuda.tensor(sizes))
        parts = slice(0, m - 20), slice(m - 20, m)
        assert error(numpy_of(found), np.stack([wide(lhs[p]).T @ wide(rows[p]) for p in parts])) < 5e-3

    right(104)
    compiles_no_more(monkeypatch)
    for m in (72, 128):
        right(m)
    assert not card.failures


CONFIGS = [
    MatmulConfig(128, 128, 64, 3),
    MatmulConfig(64, 64, 128, 2, split="k"),
    MatmulConfig(64, 128, 64, 3, split="n"),
    *(MatmulConfig(128, 128, 64, 3, cluster=axis, blocks=2) for axis in "mn"),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.split}-{config.cluster}")
def test_any_division_of_a_product_of_two_views(config: MatmulConfig) -> None:
    columns, rows = normal(136, 200), normal(264, 136)
    given = (torch.from_numpy(each.astype(F32)).bfloat16().t() for each in (columns, rows))
    found = hopper.matmul(*given, config=config, interpret="hopper-twin")
    assert error(numpy_of(found), wide(columns).T @ wide(rows).T) < 5e-3


@pytest.mark.parametrize("axis", [None, "m", "n"])
def test_groups_of_a_view_that_others_surround(axis: str | None) -> None:
    """Infinities in rows of no group would make a NaN of a product with zeros."""
    lhs, rhs, sizes = normal(136, 72), normal(136, 264), np.int32([50, 0, 43])
    lhs[93:], rhs[93:] = np.inf, np.inf
    tensors = [torch.from_numpy(each.astype(F32)).bfloat16() for each in (lhs, rhs)]
    config = MatmulConfig(128, 128, 64, 3, cluster=axis, blocks=2)
    found = hopper.tgmm(tensors[0].T, tensors[1], sizes, config=config, interpret="hopper-twin")
    parts = slice(0, 50), slice(50, 50), slice(50, 93)
    assert error(numpy_of(found), np.stack([wide(lhs[p]).T @ wide(rhs[p]) for p in parts])) < 5e-3


def test_what_is_copied(cuda: Torch) -> None:
    """Rows that the copy engine does not copy, and dtypes that the tensor cores take in one order."""
    for array in (normal(K, 90), normal(K, M, dtype=F32)):
        assert as_in_memory(cuda.tensor(array).t())[1] is False
    dense = cuda.tensor(normal(K, M))
    assert as_in_memory(dense) == (dense, False) and as_in_memory(dense.t())[1] is True
    assert as_in_memory(cuda.tensor(normal(K, 2 * M))[:, ::2])[1] is False
