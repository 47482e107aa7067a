"""Forward differentiation of PyTorch's operators: alone, nested, with the other mode, with batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from palladio.interop.torch import attention, gmm, matmul, moe_mlp, softmax, tgmm

SIZES = torch.tensor([3, 0, 4])
IDS = torch.tensor([[0, 1], [2, 1]])

CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "gmm": (lambda x, w: gmm(x, w, SIZES), ((9, 4), (3, 4, 5))),
    "gmm transposed": (lambda x, w: gmm(x, w, SIZES, transpose_rhs=True), ((9, 4), (3, 5, 4))),
    "gmm into": (lambda x, w, out: gmm(x, w, SIZES, existing_out=out), ((9, 4), (3, 4, 5), (9, 5))),
    "tgmm": (lambda x, y: tgmm(x, y, SIZES), ((4, 9), (9, 5))),
    "tgmm into": (lambda x, y, out: tgmm(x, y, SIZES, existing_out=out), ((4, 9), (9, 5), (3, 4, 5))),
    "matmul": (matmul, ((4, 9), (9, 5))),
    "softmax": (softmax, ((4, 9),)),
    "attention": (attention, ((2, 4, 9), (2, 5, 9), (2, 5, 3))),
    "causal": (lambda q, k, v: attention(q, k, v, causal=True), ((2, 4, 9), (2, 4, 9), (2, 4, 3))),
    "moe_mlp": (lambda x, w, up, down: moe_mlp(x, IDS, w, up, down), ((2, 4), (2, 2), (3, 4, 6), (3, 3, 4))),
}


def drawn(shapes: Any, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)


@pytest.mark.parametrize("name", CASES)
def test_tangents_are_those_of_the_definition_and_of_the_other_mode(name: str) -> None:
    function, shapes = CASES[name]
    given, tangents = drawn(shapes), drawn(shapes, 1)
    found = torch.func.jvp(function, given, tangents)[1]
    gradients = torch.func.jacrev(function, argnums=tuple(range(len(given))))(*given)
    wanted = sum((g * t).sum(tuple(range(found.dim(), g.dim()))) for g, t in zip(gradients, tangents, strict=True))
    torch.testing.assert_close(found, wanted)
    step = 1e-6
    ahead, behind = (function(*(x + s * t for x, t in zip(given, tangents, strict=True))) for s in (step, -step))
    torch.testing.assert_close(found, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_tangent_may_be_of_one_operand_only(name: str) -> None:
    function, shapes = CASES[name]
    given, tangents = drawn(shapes), drawn(shapes, 1)
    for number, tangent in enumerate(tangents):
        alone = lambda x, number=number: function(*given[:number], x, *given[number + 1 :])
        rest = tuple(torch.zeros_like(each) for each in given)
        wanted = torch.func.jvp(function, given, (*rest[:number], tangent, *rest[number + 1 :]))[1]
        torch.testing.assert_close(torch.func.jvp(alone, (given[number],), (tangent,))[1], wanted)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_derivatives(name: str) -> None:
    function, shapes = CASES[name]
    given, tangents = drawn(shapes), drawn(shapes, 1)
    along = lambda f: lambda *x: torch.func.jvp(f, x, tangents)[1]
    cubes = lambda *x: (function(*x) ** 3).sum()
    gradients = torch.func.grad(cubes, argnums=tuple(range(len(given))))
    reverse = torch.func.grad(lambda *x: sum((g * t).sum() for g, t in zip(gradients(*x), tangents, strict=True)))
    torch.testing.assert_close(torch.func.grad(along(cubes))(*given), reverse(*given))
    twice = sum((g * t).sum() for g, t in zip(torch.func.jvp(gradients, given, tangents)[1], tangents, strict=True))
    torch.testing.assert_close(along(along(cubes))(*given), twice)


def test_a_third_tangent_is_not_lost() -> None:
    x, t = drawn([(4, 9)])[0], drawn([(4, 9)], 1)[0]
    (y,) = drawn([(9, 5)], 2)
    along = lambda f: lambda x: torch.func.jvp(f, (x,), (t,))[1]
    found = along(along(along(lambda x: (matmul(x, y) ** 3).sum())))(x)
    torch.testing.assert_close(found, 6 * ((t @ y) ** 3).sum())


def test_dual_tensors_and_batches() -> None:
    x, y = drawn([(4, 9), (9, 5)])
    t = drawn([(3, 4, 9)], 1)[0]
    with torch.autograd.forward_ad.dual_level():
        out = matmul(torch.autograd.forward_ad.make_dual(x, t[0]), y)
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(out).tangent, t[0] @ y)
    each = torch.func.vmap(lambda t: torch.func.jvp(lambda x: matmul(x, y), (x,), (t,))[1])(t)
    torch.testing.assert_close(each, t @ y)
    torch.testing.assert_close(torch.func.jacfwd(softmax)(x), torch.func.jacrev(softmax)(x))


def test_compiled_code_loses_no_tangent() -> None:
    x, y = drawn([(4, 9), (9, 5)])
    (t,) = drawn([(4, 9)], 1)
    compiled = torch.compile(lambda x: torch.func.jvp(lambda x: matmul(x, y), (x,), (t,))[1], backend="aot_eager")
    torch.testing.assert_close(compiled(x), t @ y)
    compiled = torch.compile(torch.func.grad(lambda x: matmul(x, y).sum()), backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.ones(4, 5, dtype=x.dtype) @ y.T)


def test_a_batch_is_one_compiled_graph_and_derivatives_of_batches_are_kept() -> None:
    x, y = drawn([(2, 4, 9), (9, 5)])
    batched = torch.func.vmap(lambda x: softmax(matmul(x, y)))
    expected = torch.softmax(x @ y, -1)
    torch.testing.assert_close(torch.compile(batched, fullgraph=True, backend="aot_eager")(x), expected)
    gradient = torch.func.grad(lambda x: (batched(x) ** 2).sum())
    torch.testing.assert_close(torch.compile(gradient, backend="aot_eager")(x), gradient(x))


def test_a_tangent_has_the_dtype_of_the_result() -> None:
    x, y = (each.bfloat16() for each in drawn([(4, 9), (9, 5)]))
    wide = lambda x: matmul(x, y, preferred_element_type=torch.float32)
    assert torch.func.jvp(wide, (x,), (x,))[1].dtype == torch.float32
    assert torch.func.jvp(lambda x: matmul(x, y), (x,), (x,))[1].dtype == torch.bfloat16
