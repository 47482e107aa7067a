"""A later expert layer goes from arrays or tensors to its kernels without checks; others take the way with checks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
from palladio.interop.torch import moe_mlp as of_tensors
from palladio.library import experts, moe_mlp
from tests.library.references import normal

T, H, INNER, E, K = 4, 32, 16, 5, 2
UP, DOWN = torch.from_numpy(normal(3, E, 2 * INNER, H)), torch.from_numpy(normal(4, E, H, INNER))
X, IDS = torch.from_numpy(normal(0, T, H)), torch.tensor([[0, 3], [4, 0], [1, 3], [0, 2]])
WEIGHTS = torch.from_numpy(normal(1, T, K)).abs()

pytestmark = pytest.mark.one_executor


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with pl.executor("cpu"):
        yield


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The key of each call that was looked up after checks; calls with these shapes and dtypes are kept."""
    for call in (of_tensors, of_arrays):
        call(X, IDS, WEIGHTS, UP, DOWN, transposed=True)
        call(X, IDS, WEIGHTS, UP, DOWN, transposed=True)
    found: list[Any] = []
    find = experts._known_key
    monkeypatch.setattr(experts, "_known_key", lambda *args: found.append(args) or find(*args))
    return found


def of_arrays(*given: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.from_numpy(moe_mlp(*(each.numpy() for each in given), **options))


def layer(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, up: torch.Tensor = UP) -> torch.Tensor:
    """The layer in float64, token by token."""
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token, place in np.ndindex(*ids.shape):
        expert = int(ids[token, place])
        if 0 <= expert < E:
            gate, other = (up[expert].double() @ x[token].detach().double()).chunk(2)
            hidden = torch.nn.functional.silu(gate) * other
            out[token] += weights[token, place].double() * (DOWN[expert].double() @ hidden)
    return out


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    assert type(found) is torch.Tensor and found.shape == wanted.shape
    return bool((found.double() - wanted).abs().max() <= 1e-5 * max(1.0, float(wanted.abs().max())))


ROUTES = [[[0, 0], [0, 0], [0, 0], [0, 0]], [[-1, 5], [4, 99], [2, 2], [1, 0]], [[7, -3]] * 4]


@pytest.mark.parametrize("call", [of_tensors, of_arrays])
def test_later_calls_take_other_values_and_do_not_come_back_to_the_checks(
    call: Callable[..., torch.Tensor], checked: list[Any]
) -> None:
    for seed, ids in enumerate([IDS.tolist(), *ROUTES]):
        x, chosen = torch.from_numpy(normal(seed + 7, T, H)), torch.tensor(ids)
        weights = torch.from_numpy(normal(seed, T, K))
        assert close(call(x, chosen, weights, UP, DOWN, transposed=True), layer(x, chosen, weights))
    assert not checked


def test_the_first_call_and_later_ones_have_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("PALLADIO_NUM_THREADS", threads)
        found += [of_tensors(X, IDS, WEIGHTS, UP, DOWN, transposed=True) for _ in range(3)]
        found.append(of_tensors(X[:3], IDS[:3], WEIGHTS[:3], UP, DOWN, transposed=True))
    assert all(torch.equal(each, found[0][: len(each)]) for each in found)


def test_parameters_are_read_where_no_gradient_is_recorded(checked: list[Any]) -> None:
    up, down = torch.nn.Parameter(UP), torch.nn.Parameter(DOWN)
    with torch.no_grad():
        out = of_tensors(X, IDS, WEIGHTS, up, down, transposed=True)
        assert close(out, layer(X, IDS, WEIGHTS)) and not out.requires_grad and not checked
    with torch.inference_mode():
        assert close(of_tensors(X, IDS, WEIGHTS, up, down, transposed=True), layer(X, IDS, WEIGHTS)) and not checked
    recorded = of_tensors(X, IDS, WEIGHTS, up, down, transposed=True)
    assert recorded.requires_grad
    recorded.sum().backward()
    assert up.grad is not None and bool(up.grad.abs().sum() > 0)


class Named(torch.Tensor):
    pass


LONGER: dict[str, Callable[[], tuple[torch.Tensor, ...]]] = {
    "strides": lambda: (X.T.contiguous().T, IDS, WEIGHTS, UP),
    "strided ids": lambda: (X, IDS.T.contiguous().T, WEIGHTS, UP),
    "gaps": lambda: (torch.cat([X, X], 1)[:, :H], IDS, WEIGHTS, UP),
    "strided matrices": lambda: (X, IDS, WEIGHTS, UP.mT.contiguous().mT),
    "negated": lambda: (torch._neg_view(-X), IDS, WEIGHTS, UP),
    "subclass": lambda: (X.as_subclass(Named), IDS, WEIGHTS, UP),
    "narrow ids": lambda: (X, IDS.to(torch.int16), WEIGHTS, UP),
}


@pytest.mark.parametrize("name", LONGER)
def test_what_is_not_like_the_kept_call_takes_the_longer_way(name: str, checked: list[Any]) -> None:
    given = IDS, WEIGHTS, UP
    x, *rest = LONGER[name]()
    found = of_tensors(x, *rest, DOWN, transposed=True).as_subclass(torch.Tensor)
    assert close(found, layer(x.as_subclass(torch.Tensor), *rest))
    assert experts.layer_again((X, *given, DOWN), "swiglu", True) is not None
    assert experts.layer_again((x, *rest, DOWN), "swiglu", True) is None


def test_so_do_other_options_and_executors(checked: list[Any]) -> None:
    given = X, IDS, WEIGHTS, UP, DOWN
    with pl.executor("reference"):
        assert close(of_tensors(*given, transposed=True), layer(X, IDS, WEIGHTS)) and checked
    checked.clear()
    assert not close(of_tensors(*given, activation="geglu", transposed=True), layer(X, IDS, WEIGHTS)) and checked
    bias = torch.ones(E, H)
    assert not close(of_tensors(*given, down_bias=bias, transposed=True), layer(X, IDS, WEIGHTS))


def test_the_result_does_not_overlap_an_input_that_is_several_arguments(checked: list[Any]) -> None:
    tokens = X.clone()
    found = of_tensors(tokens, IDS, tokens.view(-1)[: T * K].view(T, K), UP, DOWN, transposed=True)
    assert close(found, layer(X, IDS, X.view(-1)[: T * K].view(T, K))) and not checked
    assert torch.equal(tokens, X) and found.data_ptr() != tokens.data_ptr()


def test_what_is_refused_is_refused_later_too(checked: list[Any]) -> None:
    with pytest.raises(pl.PalladioTypeError, match="integers are needed"):
        of_tensors(X, IDS.float(), WEIGHTS, UP, DOWN, transposed=True)
    with pytest.raises(pl.PalladioValueError):
        of_tensors(X, IDS[:2], WEIGHTS, UP, DOWN, transposed=True)
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(X, torch.ones_like(X))
        out = of_tensors(dual, IDS, WEIGHTS, UP, DOWN, transposed=True)
        assert forward.unpack_dual(out).tangent is not None


def test_a_transformation_and_autocast_see_the_operations(checked: list[Any]) -> None:
    given = IDS, WEIGHTS, UP, DOWN
    found = torch.func.vmap(lambda x: of_tensors(x, *given, transposed=True))(X[None])
    assert close(found[0], layer(X, IDS, WEIGHTS))
    with torch.autocast("cpu", torch.bfloat16):
        narrow = of_tensors(X, *given, transposed=True)
    error = (narrow.double() - layer(X, IDS, WEIGHTS)).norm() / layer(X, IDS, WEIGHTS).norm()
    assert 1e-4 < error < 5e-2


def test_threads_get_their_own_results(checked: list[Any]) -> None:
    inputs = [torch.from_numpy(normal(seed, T, H)) for seed in range(4)]
    wanted = [of_tensors(x, IDS, WEIGHTS, UP, DOWN, transposed=True) for x in inputs]
    same: list[bool] = []

    def work(x: torch.Tensor, out: torch.Tensor) -> None:
        with pl.executor("cpu"):
            same.extend(torch.equal(of_tensors(x, IDS, WEIGHTS, UP, DOWN, transposed=True), out) for _ in range(50))

    threads = [threading.Thread(target=work, args=each) for each in zip(inputs, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(same) == 200 and all(same)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")  # of JAX, where another test imported it
def test_a_forked_process_computes_the_kept_call(checked: list[Any]) -> None:
    wanted = of_arrays(X, IDS, WEIGHTS, UP, DOWN, transposed=True)
    child = os.fork()
    if not child:
        code = 2
        try:
            code = 0 if torch.equal(of_arrays(X, IDS, WEIGHTS, UP, DOWN, transposed=True), wanted) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
