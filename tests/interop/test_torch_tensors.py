"""Tensors of every kind in the functions of `palladio.interop.torch`, and threads and processes that call them."""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.data import DataLoader, Dataset

import palladio as pl
from palladio.interop.torch import gmm, softmax
from tests.architecture.source import ROOT
from tests.interop.torch_cases import FUNCTIONS, case, each, leaves, sized

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "every other column": lambda x: torch.stack([x, x], dim=-1).flatten(-2)[..., ::2],
    "transposed": lambda x: x.mT.contiguous().mT,
    "part of a larger one": lambda x: torch.nn.functional.pad(x, (1, 2, 3, 1))[..., 3:-1, 1:-2],
    "axes reversed": lambda x: x.permute(*range(x.dim())[::-1]).contiguous().permute(*range(x.dim())[::-1]),
    "negated lazily": lambda x: torch.complex(x, -x).conj().imag,
}


@each
@pytest.mark.parametrize("kind", VIEWS)
def test_a_tensor_of_any_strides_is_read_right_and_so_is_its_gradient(name: str, kind: str) -> None:
    function, given = case(name, torch.float64)
    own, plain = leaves(given), leaves(given)
    found, expected = function(*map(VIEWS[kind], own)), function(*plain)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    for one, two in zip(own, plain, strict=True):
        torch.testing.assert_close(one.grad, two.grad)


@each
def test_an_expanded_tensor_is_read_right(name: str) -> None:
    function, (first, *others) = case(name, torch.float64)
    expanded = first[..., :1, :].expand_as(first)
    torch.testing.assert_close(function(expanded, *others), function(expanded.contiguous(), *others))


@each
def test_memory_of_another_allocator_is_read_right(name: str) -> None:
    # As that of a pinned tensor, whose pages a card reads: it is of the host, and begins at a page.
    function, given = case(name, torch.float64)
    mapped = []
    for tensor in given:
        pages = torch.frombuffer(mmap.mmap(-1, 8 * tensor.numel()), dtype=torch.float64)
        mapped.append(pages.view(tensor.shape).copy_(tensor))
    torch.testing.assert_close(function(*mapped), function(*given))


@each
def test_tensors_of_inference_mode(name: str) -> None:
    function, given = case(name, torch.float32)
    expected = function(*given)
    with torch.inference_mode():
        made = tuple(tensor.clone() for tensor in given)
        inside = function(*made)
    assert inside.is_inference() and torch.equal(inside, expected)
    outside = function(*made)
    assert not outside.is_inference() and torch.equal(outside, expected)


def test_a_tensor_of_inference_mode_is_not_kept_for_a_gradient() -> None:
    _, (x, w) = case("gmm", torch.float32)
    with torch.inference_mode():
        made = w.clone()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        gmm(x.requires_grad_(), made, [5, 0, 2, 2])


class Tagged(torch.Tensor):
    """A subclass that adds nothing."""


@each
def test_a_subclass_of_tensor_comes_back(name: str) -> None:
    function, given = case(name, torch.float64)
    found = function(*(tensor.as_subclass(Tagged) for tensor in given))
    assert type(found) is Tagged
    torch.testing.assert_close(found.as_subclass(torch.Tensor), function(*given))


@each
def test_a_subclass_with_a_dispatch_of_its_own_sees_the_operators(name: str) -> None:
    integers, *given = sized(name, 9, torch.float64)
    found = FUNCTIONS[name](TwoTensor(integers, integers), *(TwoTensor(tensor, 2 * tensor) for tensor in given))
    assert type(found) is TwoTensor
    torch.testing.assert_close(found.a, FUNCTIONS[name](integers, *given))
    torch.testing.assert_close(found.b, FUNCTIONS[name](integers, *(2 * tensor for tensor in given)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x.to_sparse(), "x: the tensor is not dense"),
        (lambda x: x.to_sparse_csr(), "x: the tensor is not dense"),
        (lambda x: torch.nested.as_nested_tensor([x, x], layout=torch.jagged), "x: the tensor is not dense"),
        (lambda x: torch.nested.as_nested_tensor([x, x]), "x: the tensor is not dense\n  got:      a nested tensor"),
        (lambda x: torch.complex(x, x), "x: "),
        (lambda x: x.to(torch.int32), "x: floats are needed"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "x: the tensor is not dense"),
    ],
    ids=["sparse", "sparse rows", "nested", "nested strided", "complex", "integers", "quantised"],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state:UserWarning")
def test_tensors_that_are_no_matrices_of_floats_are_refused(make: Any, message: str) -> None:
    with pytest.raises(pl.PalladioError, match=message):
        softmax(make(torch.ones(4, 8)))


@each
def test_threads_call_and_differentiate_at_once(name: str) -> None:
    function, given = case(name, torch.float32)

    def step(_: int) -> tuple[torch.Tensor, ...]:
        own = leaves(given)
        out = function(*own)
        out.square().sum().backward()
        return out.detach(), *(tensor.grad for tensor in own)

    expected = step(0)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(step, range(16)):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)


FORKED = """
import os, warnings, torch
from palladio.interop.torch import gmm
warnings.simplefilter("ignore", DeprecationWarning)  # of Python, where a process with threads forks
x, w = torch.randn(40, 8, requires_grad=True), torch.randn(4, 8, 6, requires_grad=True)

def gradients():
    return torch.autograd.grad(gmm(x, w, [10, 0, 20, 10]).square().sum(), (x, w))

expected = gradients()
child = os.fork()
if not child:
    os._exit(not all(map(torch.equal, gradients(), expected)))
assert os.waitpid(child, 0)[1] == 0 and all(map(torch.equal, gradients(), expected))
"""


def test_a_forked_process_differentiates() -> None:
    subprocess.run([sys.executable, "-c", FORKED], cwd=ROOT, check=True, timeout=60)


class Rows(Dataset):  # type: ignore[type-arg]
    """A data set whose items a kernel computes."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        return softmax(torch.arange(8.0)[None] * number)[0]


@pytest.mark.parametrize(("context", "workers"), [("fork", 2), ("spawn", 1)])  # a spawned one imports for seconds
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")  # of JAX, where another test imported it
def test_the_processes_of_a_data_loader_call_kernels(context: str, workers: int) -> None:
    expected = torch.stack([Rows()[number] for number in range(6)])  # so that a pool of threads is there to be forked
    loader = DataLoader(Rows(), batch_size=2, num_workers=workers, multiprocessing_context=context)
    torch.testing.assert_close(torch.cat(list(loader)), expected)
