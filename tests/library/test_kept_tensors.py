"""A later product of tensors reads their memory without NumPy arrays on them; others take the way with checks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import palladio as pl
from palladio.array import tensors
from palladio.library import gmm, grouped_matmul, matmul, tilings
from tests.library.references import normal

M, K, N = 6, 24, 40
X, RHS = torch.from_numpy(normal(0, M, K)), torch.from_numpy(normal(1, 8, K, N))
SIZES = torch.tensor([2, 0, 1, 0, 0, 3, 0, 0], dtype=torch.int32)

pytestmark = pytest.mark.one_executor


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    grouped_matmul._GMM.clear()
    with pl.executor("cpu"):
        yield


def product(x: torch.Tensor, rhs: torch.Tensor = RHS, sizes: Any = SIZES) -> torch.Tensor:
    counts = [int(count) for count in sizes]
    rows = x.detach().double().split([*counts, len(x) - sum(counts)])
    groups = rhs.detach().double()
    return torch.cat([*(mine @ matrix for mine, matrix in zip(rows, groups, strict=False)), rows[-1] @ (0 * groups[0])])


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-5) -> bool:
    assert type(found) is torch.Tensor and found.shape == wanted.shape and not found.requires_grad
    return bool((found.double() - wanted).abs().max() <= tolerance * wanted.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("m", "groups", "transposed"), [(1, 8, False), (3, 5, False), (20, 8, True), (20, 5, False), (300, 12, False)]
)
def test_later_calls_are_right_and_do_not_come_back_to_the_checks(
    longer: list[Any], m: int, groups: int, transposed: bool, dtype: torch.dtype
) -> None:
    rhs = torch.from_numpy(normal(1, groups, K, N)).to(dtype)
    given = rhs.mT.contiguous() if transposed else rhs
    sizes = torch.zeros(groups, dtype=torch.int32)
    sizes[1], sizes[3] = m // 2, m - m // 2 - (m > 4)
    results = []
    for seed in range(5):
        x = torch.from_numpy(normal(seed, m, K)).to(dtype)
        checked = len(longer)
        found = gmm(x, given, sizes, transpose_rhs=transposed)
        assert found.dtype == dtype and close(found, product(x, rhs, sizes), 1e-5 if dtype.itemsize > 2 else 2e-2)
        results.append(found)
    assert len(longer) == checked  # the last call is not among them
    assert len({each.data_ptr() for each in results}) == 5


def remembered(x: torch.Tensor = X) -> None:
    for _ in range(3):
        gmm(x, RHS, SIZES)


def test_arrays_and_tensors_in_turns_both_do_without_checks(longer: list[Any]) -> None:
    for _ in range(3):
        gmm(X.numpy(), RHS.numpy(), SIZES.numpy())
    remembered()
    longer.clear()
    for _ in range(3):
        assert close(gmm(X, RHS, SIZES), product(X))
        np.testing.assert_allclose(gmm(X.numpy(), RHS.numpy(), SIZES.numpy()), product(X).numpy(), atol=1e-5)
    assert not longer


def test_memory_that_other_tensors_have_now_is_read_as_theirs(longer: list[Any]) -> None:
    """Addresses, shapes and dtypes are those of each call."""
    memory = torch.from_numpy(normal(2, 4 * M, K))
    x = memory[:M]
    remembered(x)
    longer.clear()
    x.copy_(X)
    assert close(gmm(x, RHS, SIZES), product(X)) and not longer
    x.set_(memory.untyped_storage(), M * K, (M, K))
    assert close(gmm(x, RHS, SIZES), product(memory[M : 2 * M])) and not longer
    halves = memory.view(torch.bfloat16)[:M, :K]
    for other in (memory[: M + 3], halves.nan_to_num().clamp(-1, 1).contiguous(), memory[:M].double()):
        wide = product(other, RHS.to(other.dtype))
        assert close(gmm(other, RHS.to(other.dtype), SIZES), wide, 2e-2)
    assert longer
    x.resize_(2 * M, K)
    assert close(gmm(x, RHS, SIZES), product(x))
    x.resize_(M, K).requires_grad_()
    with pytest.raises(pl.PalladioTypeError, match="gradient of the tensor would be lost"):
        gmm(x, RHS, SIZES)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("of_arrays", [False, True])
def test_sizes_of_64_bits_and_transposed_views_do_without_checks(
    transposed: bool, of_arrays: bool, longer: list[Any]
) -> None:
    rhs = RHS.mT.contiguous().mT if transposed else RHS

    def call(counts: list[int]) -> torch.Tensor:
        given = X, rhs, torch.tensor(counts)
        return torch.as_tensor(gmm(*(each.numpy() for each in given)) if of_arrays else gmm(*given))

    for _ in range(3):
        call([2, 0, 1, 0, 0, 3, 0, 0])
    longer.clear()
    for counts in ([2, 0, 1, 0, 0, 3, 0, 0], [0, 0, 0, 4, 0, 0, 0, 0], [0] * 8):
        assert torch.allclose(call(counts).double(), product(X, RHS, counts), atol=1e-5)
    assert not longer
    for counts in ([-1, 1] + [0] * 6, [1 << 32] + [0] * 7, [(1 << 63) - 1, 1] + [0] * 6):
        with pytest.raises(pl.PalladioValueError, match=r"negative|sum to more"):
            call(counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("m", [2, 8, 40])
@pytest.mark.parametrize("transposed", [False, True])
def test_later_dense_products_do_without_checks(
    m: int, transposed: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = RHS[0].to(dtype)
    given = y.T.contiguous().T if transposed else y
    for seed in range(4):
        x = torch.from_numpy(normal(seed, m, K)).to(dtype)
        if seed == 3:
            monkeypatch.setattr(sys.modules["palladio.library.matmul"], "call_key", None)  # which the checks call
            monkeypatch.setattr(grouped_matmul, "call_key", None)
        wanted = x.double() @ y.double()
        for found in (matmul(x, given), *([] if dtype.itemsize == 2 else [matmul(x.numpy(), given.numpy())])):
            assert close(torch.as_tensor(found), wanted, 1e-5 if dtype.itemsize > 2 else 2e-2)


@pytest.mark.parametrize("function", [gmm, matmul])
def test_a_tangent_is_refused_before_and_after_calls_are_kept(function: Any) -> None:
    forward, rest = torch.autograd.forward_ad, (RHS, SIZES) if function is gmm else (RHS[0],)
    argument = "lhs" if function is gmm else "x"
    for _ in range(4):
        with forward.dual_level():
            dual = forward.make_dual(X, torch.ones_like(X))
            halves = forward.make_dual(X.bfloat16(), torch.ones_like(X).bfloat16())
            for x in (dual, halves):
                with pytest.raises(pl.PalladioTypeError, match="the gradient of the tensor would be lost") as error:
                    function(x, *rest)
                assert error.value.argument == argument
            assert tensors.facts_of((dual,)) is None
            assert torch.equal(function(dual.detach(), *rest), function(X, *rest))
        function(X, *rest)
        function(X.bfloat16(), *rest)


def test_the_sizes_are_those_of_each_call(longer: list[Any]) -> None:
    remembered()
    longer.clear()
    for counts in ([6, 0, 0, 0, 0, 0, 0, 0], [0] * 8, [0, 1, 1, 1, 1, 1, 1, 0]):
        sizes = torch.tensor(counts, dtype=torch.int32)
        found = gmm(X, RHS, sizes)
        assert torch.allclose(found.double(), product(X, RHS, sizes), atol=1e-5) and not longer
    for counts, rule in (([7] + [0] * 7, "sum to more"), ([-1, 1] + [0] * 6, "negative")):
        with pytest.raises(pl.PalladioValueError, match=rule):
            gmm(X, RHS, torch.tensor(counts, dtype=torch.int32))


EVENNESS = [
    ([7, 6, 7, 20, 10, 10, 0, 0, 0], [3, 2, 5, 50, 0, 0, 0, 0, 0]),
    ([1, 0, 1, 0, 0, 1, 9, 0, 0], [0, 0, 12, 0, 0, 0, 0, 0, 0]),
]


@pytest.mark.parametrize(("even", "skewed"), EVENNESS, ids=["many-rows", "few-rows"])
def test_of_many_groups_calls_with_even_sizes_alone_do_without_checks(
    even: list[int], skewed: list[int], longer: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skewed sizes go through the checks, which run the kernel that divides the columns."""
    monkeypatch.setattr(tilings, "BRIEF_OPERATIONS", 0)  # or so little work would not be spread
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "2")
    grouped_matmul._GMM.clear()
    rhs = torch.from_numpy(normal(1, 9, K, N))
    for seed, counts in enumerate([even, even, even, skewed, skewed, even, skewed, even]):
        longer.clear()
        x, sizes = torch.from_numpy(normal(seed, sum(even), K)), torch.tensor(counts, dtype=torch.int32)
        assert close(gmm(x, rhs, sizes), product(x, rhs, sizes))
        assert seed < 2 or bool(longer) == (counts is skewed)


OTHERS: dict[str, Callable[[], torch.Tensor]] = {
    "strides": lambda: X.T.contiguous().T,
    "negated": lambda: torch._neg_view(-X),
    "gaps": lambda: torch.cat([X, X], 1)[:, :K],
}


@pytest.mark.parametrize("name", OTHERS)
def test_tensors_that_are_not_their_memory_take_the_longer_way(name: str, longer: list[Any]) -> None:
    remembered()
    longer.clear()
    assert close(gmm(OTHERS[name](), RHS, SIZES), product(X)) and longer
    longer.clear()
    assert close(gmm(X, RHS, SIZES), product(X)) and not longer


REFUSED: dict[str, Callable[[], torch.Tensor]] = {
    "gradient": lambda: X.clone().requires_grad_(),
    "zeros without memory": lambda: torch._efficientzerotensor(X.shape),
    "sparse": X.to_sparse,
    "nested": lambda: torch.nested.nested_tensor([*X]),
    "meta": lambda: X.to("meta"),
    "mkldnn": X.to_mkldnn,
}


def test_a_tangent_is_refused_later_too_and_other_tensors_are_not() -> None:
    forward_ad = torch.autograd.forward_ad
    remembered()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, torch.ones_like(X))
        with pytest.raises(pl.PalladioTypeError, match="the gradient of the tensor would be lost"):
            gmm(dual, RHS, SIZES)
        assert close(gmm(X, RHS, SIZES), product(X))
        assert close(gmm(dual.detach(), RHS, SIZES), product(X))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_the_checks_refuse_is_refused_later_too(name: str) -> None:
    def outcome() -> str:
        with pytest.raises(Exception) as error:  # the same one, whichever it is
            gmm(REFUSED[name](), RHS, SIZES)
        return str(error.value).splitlines()[0]

    before = outcome()
    remembered()
    assert outcome() == before


def test_a_subclass_is_not_a_tensor_that_was_kept() -> None:
    remembered()

    class Named(torch.Tensor):
        pass

    assert tensors.facts_of((X.as_subclass(Named), RHS)) is None and tensors.facts_of((X, RHS)) is not None


def test_a_parameter_is_read_unless_its_gradient_is_recorded(longer: list[Any]) -> None:
    remembered()
    longer.clear()
    matrices = torch.nn.Parameter(RHS)
    for region in (torch.no_grad, torch.inference_mode):
        with region():
            assert close(gmm(X, matrices, SIZES), product(X)) and not longer
    assert tensors.facts_of((X, matrices)) is None
    with pytest.raises(pl.PalladioTypeError, match="the gradient of the tensor would be lost"):
        gmm(X, matrices, SIZES)


def test_no_tensor_is_kept_that_is_wrapped_or_watched() -> None:
    facts = []

    def note(x: torch.Tensor) -> torch.Tensor:
        facts.append(tensors.facts_of((x, RHS)))
        facts.append(tensors.facts_of((X, RHS)))  # a tensor from outside
        return x.sum()

    torch.func.vmap(note)(X[None])
    torch.func.grad(note)(X)
    torch.func.jvp(note, (X,), (X,))
    torch.func.functionalize(note)(X)
    make_fx(note)(X)
    torch.jit.trace(note, (X,), check_trace=False)
    assert len(facts) == 12 and not any(facts)
    batched = []
    y = X.clone().requires_grad_()
    y.register_hook(lambda grad: batched.append(tensors.facts_of((grad,))))
    torch.autograd.grad((2 * y).sum(0), y, torch.ones(3, K), is_grads_batched=True)
    assert batched == [None]
    assert tensors.facts_of((torch._to_functional_tensor(X),)) is None


def test_the_memory_of_a_tensor_that_was_freed_is_not_read() -> None:
    remembered()
    x = X.clone()
    x.untyped_storage().resize_(0)
    assert tensors.facts_of((x, RHS)) is None


def test_another_executor_and_a_trace_do_not_find_the_call(longer: list[Any]) -> None:
    remembered()
    longer.clear()
    with pl.executor("reference"):
        assert close(gmm(X, RHS, SIZES), product(X)) and longer
    staged = pl.jit(lambda x: gmm(x, RHS.numpy(), SIZES.numpy()) * 2)(X.numpy())
    np.testing.assert_allclose(staged, 2 * product(X).numpy(), atol=1e-4)


def test_several_threads_call_at_once() -> None:
    remembered()
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = torch.from_numpy(normal(seed, M, K))
        wanted = product(x)
        wrong.extend(turn for turn in range(200) if not close(gmm(x, RHS, SIZES), wanted))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert wrong == []
