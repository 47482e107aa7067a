"""PyTorch's gradients flow through the library's kernels."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import palladio as pl
from palladio import library
from palladio.interop.torch import gmm, matmul, softmax, tgmm

F64 = torch.float64
TILES = (4, 2, 2)
SIZES = [3, 0, 4]


def leaf(*shape, seed=0, dtype=F64):
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def right(transpose_rhs, groups=3):
    return leaf(groups, 2, 3) if transpose_rhs else leaf(groups, 3, 2)


def checked(function, *inputs):
    return torch.autograd.gradcheck(function, inputs) and torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_gmm_and_its_gradient_have_gradients(transpose_rhs):
    assert checked(
        lambda lhs, rhs: gmm(lhs, rhs, SIZES, F64, TILES, transpose_rhs=transpose_rhs), leaf(9, 3), right(transpose_rhs)
    )


def test_existing_out_has_a_gradient_where_its_rows_are_kept():
    function = lambda lhs, rhs, existing: gmm(lhs, rhs, [2, *SIZES], F64, TILES, 1, existing)[:, :2]
    assert checked(function, leaf(10, 3), leaf(2, 3, 2), leaf(10, 2))


def test_a_shard_has_gradients():
    assert checked(lambda lhs, rhs: gmm(lhs, rhs, SIZES, F64, TILES, np.int32(1)), leaf(9, 3), leaf(2, 3, 2))


def test_tgmm_and_its_gradient_have_gradients():
    assert checked(lambda lhs, rhs: tgmm(lhs, rhs, SIZES, F64, TILES), leaf(3, 9), leaf(9, 2))
    assert checked(
        lambda lhs, rhs, existing: tgmm(lhs, rhs, SIZES, F64, TILES, 1, 2, existing),
        leaf(3, 9),
        leaf(9, 2),
        leaf(2, 3, 2),
    )


def test_matmul_and_softmax_have_gradients():
    assert checked(lambda x, y: matmul(x, y, tiling=TILES), leaf(5, 3), leaf(3, 4))
    assert checked(lambda x: softmax(x, block_rows=2), leaf(5, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_results_are_those_of_the_library_in_its_dtypes(dtype):
    lhs, rhs = leaf(9, 3, dtype=dtype), leaf(3, 3, 2, dtype=dtype)
    out = gmm(lhs, rhs, torch.tensor(SIZES))
    assert out.dtype == dtype
    assert torch.equal(out.detach(), library.gmm(lhs.detach(), rhs.detach(), SIZES))
    out.sum().backward()
    assert (lhs.grad.dtype, rhs.grad.dtype) == (dtype, dtype)


def test_each_product_takes_its_own_tiling():
    calls = []
    look_up = lambda which: lambda *sizes: calls.append((which, sizes)) or (4, 4, 4)
    lhs, rhs = leaf(9, 3), leaf(3, 3, 2)
    gmm(lhs, rhs, SIZES, tiling=[look_up("forward"), look_up("left"), look_up("right")]).sum().backward()
    assert calls == [("forward", (9, 3, 2)), ("left", (9, 2, 3)), ("right", (9, 3, 2))]


def test_sizes_changed_after_the_forward_product_do_not_change_its_gradient():
    lhs, rhs, sizes = leaf(9, 3), leaf(3, 3, 2), torch.tensor(SIZES)
    out = gmm(lhs, rhs, sizes, F64)
    sizes.zero_()
    out.sum().backward()
    assert rhs.grad[0].any() and rhs.grad[2].any()


def test_only_gradients_that_are_needed_are_computed():
    lhs, rhs = leaf(9, 3), leaf(3, 3, 2).detach()
    gmm(lhs, rhs, SIZES, F64).sum().backward()
    assert lhs.grad is not None and rhs.grad is None


def test_a_layer_learns_its_matrices():
    torch.manual_seed(0)
    rows, target = torch.randn(40, 4), torch.randn(3, 4, 2)
    sizes = torch.tensor([10, 5, 25])
    wanted = library.gmm(rows, target, sizes)
    weights = torch.zeros(3, 4, 2, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.5)
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = ((gmm(rows, weights, sizes) - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-3 * losses[0]


def test_an_error_points_at_the_line_of_the_call():
    with pytest.raises(pl.PalladioValueError, match="group sizes sum to more") as caught:
        gmm(leaf(9, 3), leaf(3, 3, 2), [5, 5, 5])
    assert f"{__file__}:" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("torch", "PyTorch", "torch"), ("jax", "JAX", "jax"), ("transformers", "Transformers 5", "transformers")],
)
def test_a_missing_library_is_named_with_its_extra(name, library, extra):
    code = (
        f"import sys; sys.modules[{name!r}] = None\n"
        "import palladio.interop\n"
        "try:\n"
        f"    palladio.interop.{name}\n"
        "except ImportError as error:\n"
        "    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message = f"palladio.interop.{name} needs {library}, which is not installed\n  hint:     pip install"
    assert run.stdout.startswith(f"{message} 'palladio[{extra}]'\n  <string>:4, in <module>\n")


def test_no_other_library_is_imported_before_it_is_needed():
    code = "import sys, palladio.interop, palladio.library; print({'torch', 'jax'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_sizes_that_change_after_the_call_change_no_gradient():
    lhs, rhs, sizes = leaf(9, 3), leaf(3, 3, 2), torch.tensor(SIZES)
    out = gmm(lhs, rhs, sizes)
    wanted = torch.autograd.grad(out.sum(), lhs, retain_graph=True)[0]
    sizes.zero_()
    assert torch.equal(torch.autograd.grad(out.sum(), lhs)[0], wanted)
