"""Batches and derivatives of `torch.func`, the expert layer, operators of users' kernels; all compiled too."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import palladio as pl
from palladio.interop.torch import attention, experts, gmm, moe_mlp, op, tgmm
from palladio.interop.torch.composed_experts import composed

SIZES = torch.tensor([3, 0, 4, 2], dtype=torch.int32)


def drawn(*shape: int, dtype: Any = torch.float32, seed: int = 0, grad: bool = False) -> torch.Tensor:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return torch.tensor(values, dtype=dtype, requires_grad=grad)


def test_batches_and_the_derivatives_of_torch_func() -> None:
    x, w = drawn(5, 9, 8, dtype=torch.float64), drawn(4, 8, 6, dtype=torch.float64)
    expected = torch.stack([gmm(each, w, SIZES) for each in x])
    torch.testing.assert_close(torch.func.vmap(lambda x: gmm(x, w, SIZES))(x), expected)
    sums = lambda x: gmm(x, w, SIZES).sum()
    gradient = torch.autograd.functional.jacobian(sums, x[1])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(sums))(x)[1], gradient)
    torch.testing.assert_close(torch.func.jacrev(sums)(x[1]), gradient)


def test_attention_has_the_derivative_of_its_formula() -> None:
    q, k, v = (drawn(2, 5, 4, dtype=torch.float64, seed=seed, grad=True) for seed in range(3))
    for causal in (False, True):
        assert torch.autograd.gradcheck(lambda q, k, v: attention(q, k, v, causal=causal), (q, k, v))  # noqa: B023


@pytest.mark.parametrize(("lead", "own"), [((4,), 2), ((2, 4), 1)], ids=str)
def test_heads_of_queries_that_share_keys_share_their_gradients(lead: tuple[int, ...], own: int) -> None:
    q = drawn(*lead, 5, 4, dtype=torch.float64)
    k, v = (drawn(*lead[:-1], own, 6, width, dtype=torch.float64, seed=width) for width in (4, 3))

    def repeated(q: Any, k: Any, v: Any) -> Any:
        k, v = (each.repeat_interleave(lead[-1] // own, -3) for each in (k, v))
        return torch.softmax(q @ k.mT / 2, -1) @ v

    given, loss = (q, k, v), lambda function: lambda *x: (function(*x) ** 3).sum()
    torch.testing.assert_close(attention(*given), repeated(*given))
    for derive in (
        lambda function: torch.func.grad(loss(function), argnums=(0, 1, 2))(*given),
        lambda function: torch.func.jvp(function, given, given)[1],
        lambda function: torch.func.vmap(function)(*(torch.stack([each, -each]) for each in given)),
        lambda function: torch.func.vmap(function, in_dims=(0, None, None))(torch.stack([q, -q]), k, v),
    ):
        torch.testing.assert_close(derive(attention), derive(repeated))
    torch._dynamo.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    owned = [each.clone().requires_grad_() for each in given]
    compiled(*owned).pow(3).sum().backward()
    for one, expected in zip(owned, torch.func.grad(loss(repeated), argnums=(0, 1, 2))(*given), strict=True):
        torch.testing.assert_close(one.grad, expected)


def test_attention_of_a_number_of_tokens_that_a_graph_does_not_know() -> None:
    with FakeTensorMode(shape_env=ShapeEnv(allow_dynamic_output_shape_ops=True)):
        tokens = torch.nonzero(torch.ones(50)).shape[0]
        projection = torch.empty(2, tokens, 4, 64, dtype=torch.bfloat16)
        for given in (projection, projection.transpose(1, 2)):
            found = torch.ops.palladio.attention(given, given, given, True, None, None, None, "hopper-twin")
            assert (found.shape, str(found.stride())) == (given.shape, str(given.stride()))


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(pl.PalladioTypeError, match=r"rhs: the functions of palladio.interop.torch take tensors"):
        gmm(drawn(9, 8), np.ones((4, 8, 6)), SIZES)
    with pytest.raises(pl.PalladioTypeError, match="group_sizes: neither a tensor nor an array of integers"):
        gmm(drawn(9, 8), drawn(4, 8, 6), [[1], 2])
    with pytest.raises(pl.PalladioTypeError, match="preferred_element_type: PyTorch has no such dtype"):
        gmm(drawn(9, 8), drawn(4, 8, 6), SIZES, "float7")
    with pytest.raises(pl.PalladioValueError, match=r"tiling: no tuned tiling found for \(m, k, n\) = \(9, 8, 6\)"):
        gmm(drawn(9, 8), drawn(4, 8, 6), SIZES, tiling=lambda *_: None)
    with pytest.raises(pl.PalladioValueError, match=r"tiling: a tiling is three positive integers, \(tm, tk, tn\)"):
        gmm(drawn(9, 8), drawn(4, 8, 6), SIZES, tiling=(4, 4))


# The expert layer.


def routed(grad: bool = False, dtype: Any = torch.float32) -> tuple[Any, ...]:
    ids = torch.tensor([[0, 2], [2, 1], [3, 0], [2, 3], [0, 1]])
    weights = drawn(5, 2, dtype=dtype, seed=9, grad=grad)
    return drawn(5, 8, dtype=dtype, grad=grad), ids, weights


def loop(tokens: Any, ids: Any, weights: Any, up: Any, down: Any, act: Any) -> Any:
    rows = []
    for token, own, weight in zip(tokens, ids, weights, strict=True):
        parts = [w * (act(token @ up[e]) @ down[e]) for e, w in zip(own.tolist(), weight, strict=True) if e < len(up)]
        rows.append(sum(parts, torch.zeros_like(token)))
    return torch.stack(rows)


def swiglu(x: Any) -> Any:
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def test_the_expert_layer_is_the_loop_over_tokens_and_so_are_its_gradients() -> None:
    up, down = drawn(3, 8, 12, dtype=torch.float64, grad=True), drawn(3, 6, 8, dtype=torch.float64, grad=True)
    tokens, ids, weights = routed(True, torch.float64)  # expert 3 is elsewhere
    found, expected = moe_mlp(tokens, ids, weights, up, down), loop(tokens, ids, weights, up, down, swiglu)
    torch.testing.assert_close(found, expected)
    leaves = (tokens, weights, up, down)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), leaves),
        torch.autograd.grad(expected.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    flipped = moe_mlp(tokens, ids, weights, up.mT.contiguous(), down.mT.contiguous(), transposed=True)
    torch.testing.assert_close(flipped, expected)


def test_the_expert_layer_compiles_whole() -> None:
    up, down = drawn(4, 8, 12), drawn(4, 6, 8)
    tokens, ids, weights = routed()
    run = lambda *args: moe_mlp(*args, up, down)
    torch.testing.assert_close(
        torch.compile(run, fullgraph=True, backend="aot_eager")(tokens, ids, weights), run(tokens, ids, weights)
    )


@pytest.mark.parametrize("activation", ["swiglu", "gpt_oss"])
def test_the_expert_layer_and_its_gradients_are_those_of_the_library(activation: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(experts, "composed", None)
    matrices = drawn(4, 8, 12, grad=True), drawn(4, 6, 8, grad=True), drawn(4, 12, grad=True), drawn(4, 8, grad=True)
    tokens, ids, weights = routed(True)
    given = (tokens, weights, *matrices)
    up, down, up_bias, down_bias = matrices
    biases = {"up_bias": up_bias, "down_bias": down_bias}
    found = moe_mlp(tokens, ids, weights, up, down, activation=activation, interpret=True, **biases)
    expected = composed(tokens, ids, weights, *matrices, activation, False, True)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(out.square().sum(), given) for out in (found, expected)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_frozen_experts_have_no_gradient_and_pass_that_of_tokens() -> None:
    tokens, ids, weights = routed(True)
    up, down = drawn(4, 8, 12), drawn(4, 6, 8)
    grads = [torch.autograd.grad(run(tokens, ids, weights, up, down).sum(), (tokens,)) for run in (layered, plain)]
    torch.testing.assert_close(*grads)
    assert up.grad is None


def test_the_expert_layer_is_differentiated_twice() -> None:
    tokens, ids, weights = routed(True)
    up, down = drawn(4, 8, 12, grad=True), drawn(4, 6, 8)
    found = []
    for run in (layered, plain):
        (grad,) = torch.autograd.grad(run(tokens, ids, weights, up, down).square().sum(), tokens, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), (up, weights)))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-3)


def layered(*args: Any) -> Any:
    return moe_mlp(*args, interpret=True)


def plain(tokens: Any, ids: Any, weights: Any, up: Any, down: Any) -> Any:
    return composed(tokens, ids, weights, up, down, None, None, "swiglu", False, True)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_layer_has_the_same_gradients(reentrant: bool) -> None:
    tokens, ids, weights = routed(True)
    up, down = drawn(4, 8, 12, grad=True), drawn(4, 6, 8, grad=True)
    given = (tokens, weights, up, down)
    again = torch.utils.checkpoint.checkpoint(layered, tokens, ids, weights, up, down, use_reentrant=reentrant)
    again.square().sum().backward()
    expected = torch.autograd.grad(layered(tokens, ids, weights, up, down).square().sum(), given)
    torch.testing.assert_close(tuple(each.grad for each in given), expected)


def test_gradients_of_the_expert_layer_compile_whole() -> None:
    up, down = drawn(4, 8, 12, grad=True), drawn(4, 6, 8, grad=True)
    tokens, ids, weights = routed(True)
    run = lambda *args: layered(*args, up, down).square().sum()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    given = (tokens, weights, up, down)
    found, expected = (torch.autograd.grad(each(tokens, ids, weights), given) for each in (compiled, run))
    torch.testing.assert_close(found, expected)


def test_a_graph_compiled_for_a_gpu_has_the_layer() -> None:
    names: set[str] = set()

    def backend(graph: Any, inputs: Any) -> Any:
        names.update(str(node.target) for node in graph.graph.nodes if "palladio" in str(node.target))
        return graph

    run = torch.compile(moe_mlp, fullgraph=True, backend=backend)
    with FakeTensorMode(), torch.no_grad():  # autograd aborts for tensors of a GPU where PyTorch has no CUDA
        shapes = (16, 32), (4, 32, 64), (4, 32, 32)
        tokens, up, down = (torch.empty(shape, dtype=torch.bfloat16, device="cuda") for shape in shapes)
        ids = torch.empty(16, 2, dtype=torch.int64, device="cuda")
        out = run(tokens, ids, torch.empty(16, 2, device="cuda"), up, down)
        assert out.shape == tokens.shape and out.is_cuda
    assert names == {"palladio.moe_mlp.default"}


def test_a_negative_expert_adds_nothing_as_one_past_the_last() -> None:
    up, down = drawn(3, 8, 12), drawn(3, 6, 8)
    tokens, ids, weights = routed()
    negative = torch.where(ids == 3, -2, ids)
    for run in (layered, plain):
        torch.testing.assert_close(run(tokens, negative, weights, up, down), run(tokens, ids, weights, up, down))


def test_a_batch_of_choices_is_each_of_them_and_warns_of_nothing() -> None:
    tokens, weights, up, down = drawn(5, 8), drawn(5, 2, seed=1), drawn(4, 8, 12, seed=2), drawn(4, 6, 8, seed=3)
    ids = torch.arange(30).reshape(3, 5, 2) % 6 - 1
    found = torch.func.vmap(lambda ids: moe_mlp(tokens, ids, weights, up, down))(ids)
    torch.testing.assert_close(found, torch.stack([moe_mlp(tokens, one, weights, up, down) for one in ids]))


def test_a_batch_of_offsets_needs_a_number_of_groups() -> None:
    x, y = drawn(6, 17), drawn(17, 8)
    text = "num_actual_groups: the shape of the result depends on a batch of group_offset"
    with pytest.raises(pl.PalladioValueError, match=text):
        torch.func.vmap(lambda first: tgmm(x, y, SIZES, group_offset=first))(torch.tensor([0, 1]))
    found = torch.func.vmap(lambda first: tgmm(x, y, SIZES, group_offset=first, num_actual_groups=2))(
        torch.tensor([0, 1])
    )
    torch.testing.assert_close(found, torch.stack([tgmm(x, y, SIZES)[first : first + 2] for first in (0, 1)]))


@pytest.mark.parametrize("activation", ["tanh", ["swiglu"]])
def test_an_unknown_activation_is_refused(activation: Any) -> None:
    with pytest.raises(pl.PalladioValueError, match="activation: no such activation"):
        moe_mlp(*routed(), drawn(4, 8, 12), drawn(4, 6, 8), activation=activation)


# Kernels of users.


def scaled(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * y_ref[...]


CALL = pl.pallas_call(scaled, pl.ShapeDtypeStruct((4, 8), np.float32))
product = op(CALL, name="scaled", backward=lambda inputs, outputs, grads: (grads[0] * inputs[1], grads[0] * inputs[0]))


def test_a_kernel_becomes_an_operator_in_one_call() -> None:
    x, y = drawn(4, 8, grad=True), drawn(4, 8, seed=1, grad=True)
    torch.testing.assert_close(product(x, y), x * y)
    compiled = torch.compile(lambda x, y: product(x, y) + 1, fullgraph=True, backend="aot_eager")(x, y)
    torch.testing.assert_close(compiled, x * y + 1)
    torch.testing.assert_close(torch.autograd.grad(compiled.sum(), (x, y)), (y, x))
    rows = torch.stack([x.detach()] * 3)
    torch.testing.assert_close(torch.func.vmap(product, in_dims=(0, None))(rows, y.detach()), rows * y.detach())
    torch.testing.assert_close(torch.func.grad(lambda x: product(x, y.detach()).sum())(x.detach()), y.detach())


def test_a_checkpointed_kernel_has_the_same_gradients() -> None:
    x, y = drawn(4, 8, grad=True), drawn(4, 8, seed=1, grad=True)
    torch.utils.checkpoint.checkpoint(product, x, y, use_reentrant=False).sum().backward()
    torch.testing.assert_close((x.grad, y.grad), (y, x))


def test_derivatives_of_a_users_kernel_are_in_one_compiled_graph() -> None:
    x, y = drawn(4, 8), drawn(4, 8, seed=1)
    gradients = torch.func.grad(lambda x, y: (product(x, y) ** 2).sum(), argnums=(0, 1))
    found = torch.compile(gradients, fullgraph=True, backend="aot_eager")(x, y)
    torch.testing.assert_close(found, (2 * x * y * y, 2 * x * x * y))


def test_an_operator_of_a_users_kernel_passes_pytorchs_own_check() -> None:
    given = [drawn(4, 8, grad=True), drawn(4, 8, seed=1, grad=True)]
    found = torch.library.opcheck(torch.ops.palladio_kernels.scaled.default, (given,))
    assert set(found.values()) == {"SUCCESS"}
    shapes = torch.ops.palladio_kernels.scaled([each.to("meta") for each in given])
    assert [(each.shape, each.device.type) for each in shapes] == [((4, 8), "meta")]


def test_an_operator_of_a_users_kernel_takes_dense_tensors_only() -> None:
    x, y = drawn(4, 8), drawn(4, 8, seed=1)
    with pytest.raises(pl.PalladioTypeError, match=r"inputs\[1\]: the functions of (.+) take tensors"):
        product(x, y.numpy())
    with pytest.raises(pl.PalladioTypeError, match=r"inputs\[0\]: the tensor is not dense\n  got:      torch.sparse"):
        product(x.to_sparse(), y)


def test_a_kernel_of_several_results_becomes_an_operator() -> None:
    def kernel(x_ref: Any, out: Any) -> None:
        out["twice"][...], out["sum"][...] = 2 * x_ref[...], x_ref[...].sum(axis=0)

    shapes = {"twice": pl.ShapeDtypeStruct((4, 8), np.float32), "sum": pl.ShapeDtypeStruct((8,), np.float32)}
    both = op(pl.pallas_call(kernel, shapes), name="tests::both")
    x = drawn(4, 8)
    found = torch.compile(both, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(found, {"twice": x * 2, "sum": x.sum(0)})


def test_an_operator_without_a_gradient_says_so() -> None:
    alone = op(CALL, name="tests::alone")
    x, y = drawn(4, 8), drawn(4, 8, seed=1)
    text = "tests::alone: the operator has no gradient\n  hint:     op\\(call, name=..., backward=...\\) gives it one"
    with pytest.raises(pl.PalladioNotImplementedError, match=text):
        alone(x.clone().requires_grad_(), y).sum().backward()
    with pytest.raises(pl.PalladioNotImplementedError, match="the operator has no gradient"):
        torch.func.grad(lambda x: alone(x, y).sum())(x)
    rows = torch.stack([x] * 3)
    torch.testing.assert_close(torch.func.vmap(alone, in_dims=(0, None))(rows, y), rows * y)


@pytest.mark.parametrize("backward", [None, lambda inputs, outputs, grads: (grads[0], grads[0])])
def test_an_operator_loses_no_tangent(backward: Any) -> None:
    name = "tests::with_gradient" if backward else "tests::without_gradient"
    operator, x = op(CALL, name=name, backward=backward), drawn(4, 8)
    text = "the operator has no derivative in forward mode\n  hint:     torch.func.vjp and jacrev"
    with pytest.raises(pl.PalladioNotImplementedError, match=f"{name}: {text}"):
        torch.func.jvp(lambda x: operator(x, x), (x,), (x,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(pl.PalladioNotImplementedError, match=text):
        operator(torch.autograd.forward_ad.make_dual(x, x), x)


def test_what_makes_no_operator_is_refused() -> None:
    text = "call: an operator is made of what pallas_call, kernel or mpmd_map returns"
    with pytest.raises(pl.PalladioTypeError, match=text):
        op(3, name="three")  # type: ignore[arg-type]
    with pytest.raises(pl.PalladioValueError, match="name: an operator has an identifier as its name"):
        op(CALL, name="a b")
    with pytest.raises(pl.PalladioValueError, match="name: there is an operator of this name"):
        op(CALL, name="scaled")


def test_a_module_with_an_operator_is_copied() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Any, sizes: Any, w: Any) -> Any:
            return gmm(x, w, sizes)

    x, w = drawn(9, 8), drawn(4, 8, 6)
    torch.testing.assert_close(copy.deepcopy(Module())(x, SIZES, w), gmm(x, w, SIZES))
