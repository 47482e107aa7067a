"""Each function of `palladio.interop.torch` under each transformation of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

import palladio as pl
from palladio.interop.torch import attention, gmm, matmul, moe_mlp, softmax, tgmm
from tests.interop.torch_cases import DTYPES, FLOATS_OF_8_BITS, FUNCTIONS, NARROW, case, each, leaves, sized
from tests.pairs import every_pair


@each
def test_its_gradient_and_the_gradient_of_that(name: str) -> None:
    function, given = case(name, torch.float64, NARROW)
    assert torch.autograd.gradcheck(function, leaves(given))
    assert torch.autograd.gradgradcheck(function, leaves(given))


@each
@pytest.mark.parametrize("dtype", DTYPES + FLOATS_OF_8_BITS, ids=str)
def test_tensors_without_data_have_results_without_data(name: str, dtype: Any) -> None:
    given = sized(name, 9, dtype)
    expected = FUNCTIONS[name](*given)
    found = FUNCTIONS[name](*(tensor.to("meta") for tensor in given))
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, expected.dtype, expected.stride())
    assert found.is_meta
    with FakeTensorMode() as mode:
        fake = FUNCTIONS[name](*map(mode.from_tensor, given))
    assert (fake.shape, fake.dtype, fake.stride()) == (expected.shape, expected.dtype, expected.stride())


REFUSED = {
    "gmm": {"group_sizes", "rhs"},
    "tgmm": {"group_sizes", "rhs"},
    "matmul": {"y"},
    "softmax": set(),
    "attention": {"k", "v"},
    "moe_mlp": {"expert_ids", "expert_weights", "up", "down"},
}
"""The arguments that determine no device."""


@each
@pytest.mark.parametrize("records", [False, True])
def test_a_tensor_without_data_beside_others_is_refused(name: str, records: bool) -> None:
    given = list(sized(name, 9))
    given[1].requires_grad_(records)
    refused = set()
    for place, tensor in enumerate(given):
        try:
            found = FUNCTIONS[name](*given[:place], tensor.to("meta"), *given[place + 1 :])
        except pl.PalladioTypeError as error:
            refused.add(error.argument)
            assert error.rule == "the tensor has no memory of its own"
        except RuntimeError as error:
            assert place == 1 and "meta" in str(error)
        else:
            assert found.is_meta or (place == 0 and name in ("matmul", "softmax", "attention"))  # they have no integers
    assert refused == REFUSED[name]


@each
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_has_the_operators(name: str) -> None:
    function, given = case(name, torch.float32)
    trace = torch.jit.trace(function, given, check_trace=False)
    other = tuple(-2 * tensor for tensor in given)
    torch.testing.assert_close(trace(*other), function(*other))


@each
def test_a_batch_is_each_of_its_elements(name: str) -> None:
    function, given = case(name, torch.float64)
    batch = [torch.stack([tensor, 2 * tensor, -tensor]) for tensor in given]
    expected = torch.stack([function(*one) for one in zip(*batch, strict=True)])
    torch.testing.assert_close(torch.func.vmap(function)(*batch), expected)
    last = [tensor.movedim(0, -1) for tensor in batch]
    torch.testing.assert_close(torch.func.vmap(function, in_dims=-1, out_dims=1)(*last), expected.movedim(0, 1))


@each
def test_a_batch_of_none_has_the_shape_of_its_elements(name: str) -> None:
    function, given = case(name, torch.float32)
    batch = [tensor.new_empty(0, *tensor.shape) for tensor in given]
    assert torch.func.vmap(function)(*batch).shape == (0, *function(*given).shape)


@each
def test_a_batch_of_gradients_is_each_of_them(name: str) -> None:
    function, given = case(name, torch.float64)
    inputs = leaves(given)
    out = function(*inputs)
    batch = torch.stack([torch.ones_like(out), torch.arange(out.numel(), dtype=out.dtype).view_as(out)])
    found = torch.autograd.grad(out, inputs, batch, is_grads_batched=True, retain_graph=True)
    separate = (torch.autograd.grad(out, inputs, one, retain_graph=True) for one in batch)
    torch.testing.assert_close(found, tuple(map(torch.stack, zip(*separate, strict=True))))


@each
def test_functions_that_write_in_place_are_made_functional(name: str) -> None:
    function, given = case(name, torch.float64)

    def writing(*tensors: torch.Tensor) -> torch.Tensor:
        first = tensors[0].clone()
        first.mul_(2)
        out = function(first, *tensors[1:])
        out[0].add_(1)
        return out

    torch.testing.assert_close(torch.func.functionalize(writing)(*given), writing(*given))


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_region_of_autocast_decides_the_dtype(name: str, dtype: Any) -> None:
    function, given = case(name, torch.float32)
    exact = function(*given)
    own = leaves(given)
    with torch.autocast("cpu", dtype):
        found = function(*own)
    # As PyTorch's softmax on CPUs, ours keeps its dtype; the expert layer gives back that of its tokens.
    assert found.dtype == (torch.float32 if name in ("softmax", "moe_mlp") else dtype)
    torch.testing.assert_close(found.float(), exact, rtol=0.05, atol=0.1)
    found.sum().backward()
    assert {tensor.grad.dtype for tensor in own if tensor.grad is not None} == {torch.float32}
    wide, given = case(name, torch.float64)
    with torch.autocast("cpu", dtype):
        assert wide(*given).dtype == torch.float64


def module(name: str) -> Any:
    """The function as a module of its tensors and its integers, for which nothing is known beforehand."""

    class Module(torch.nn.Module):
        def forward(self, integers: Any, *tensors: Any) -> Any:
            return FUNCTIONS[name](integers, *tensors)

    return Module()


@pytest.mark.parametrize(
    ("name", "training", "dynamic"), every_pair([*FUNCTIONS], [False, True], ["dynamic", "by default"])
)
def test_other_numbers_of_tokens_do_not_compile_again(name: str, training: bool, dynamic: str) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    whole = module(name)
    compiled = torch.compile(whole, fullgraph=True, dynamic=True if dynamic == "dynamic" else None, backend=counter)
    for m in (9, 17, 40):
        integers, *given = sized(name, m)
        own, other = (leaves(given) if training else given for _ in range(2))
        found, expected = compiled(integers, *own), whole(integers, *other)
        torch.testing.assert_close(found, expected)
        if training:
            found.square().sum().backward()
            expected.square().sum().backward()
            for one, two in zip(own, other, strict=True):
                torch.testing.assert_close(one.grad, two.grad)
    assert counter.frame_count <= (1 if dynamic == "dynamic" else 2)
    assert len(counter.graphs) == counter.frame_count


def exported(name: str) -> Any:
    """The function's program for any number of tokens."""
    integers, *given = sized(name, 9)
    tokens = torch.export.Dim("tokens", min=8)
    axis, per_token = (1 if name == "attention" else 0), {"tgmm": 2, "moe_mlp": 2}.get(name, 1)
    shapes = {
        "integers": {0: tokens} if name == "moe_mlp" else None,
        "tensors": tuple({axis: tokens} if number < per_token else None for number in range(len(given))),
    }
    return torch.export.export(module(name), (integers, *given), dynamic_shapes=shapes)


@each
def test_it_is_exported_for_any_number_of_tokens(name: str) -> None:
    program = exported(name)
    for m in (9, 30):
        torch.testing.assert_close(program.module()(*sized(name, m)), FUNCTIONS[name](*sized(name, m)))


class All(torch.nn.Module):
    """All functions one after the other."""

    def forward(self, sizes: Any, ids: Any, x: Any, w: Any, weights: Any, up: Any, down: Any) -> Any:
        rows = moe_mlp(matmul(softmax(gmm(x, w, sizes)), w[0].T), ids, weights, up, down)
        return attention(rows[None], rows[None], rows[None])[0] @ tgmm(rows.T, rows, sizes)[0]


COMPILED_QUICKLY = {
    "aot_inductor.compile_wrapper_opt_level": "O0",
    "aot_inductor.precompile_headers": False,  # for one program
    "cpp_cache_precompile_headers": False,
    "cpp.vec_isa_ok": True,  # no trials of what the compiler has
}


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")  # PyTorch's own
def test_they_are_compiled_ahead_of_time(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))

    def given(m: int) -> tuple[torch.Tensor, ...]:
        sizes, x, w = sized("gmm", m)
        ids, _, *rest = sized("moe_mlp", m)
        return sizes, ids, x, w, *rest

    tokens = torch.export.Dim("tokens", min=8)
    shapes = [None, {0: tokens}, {0: tokens}, None, {0: tokens}, None, None]
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(
            torch.export.export(All(), given(9), dynamic_shapes=shapes),
            package_path=str(tmp_path / "program.pt2"),
            inductor_configs=COMPILED_QUICKLY,
        )
    run = torch._inductor.aoti_load_package(package)
    for m in (9, 20):
        torch.testing.assert_close(run(*given(m)), All()(*given(m)))


DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "jacrev": lambda loss, given: torch.func.jacrev(loss, argnums=tuple(range(len(given))))(*given),
    "vmap of jvp": lambda loss, given: torch.func.vmap(lambda *tangents: torch.func.jvp(loss, given, tangents)[1])(
        *(torch.stack([each, 2 * each]) for each in given)
    ),
    "grad of grad": lambda loss, given: torch.func.grad(lambda *x: torch.func.grad(loss)(*x).square().sum())(*given),
    "grad of vmap": lambda loss, given: torch.func.grad(
        lambda *x: torch.func.vmap(loss)(*(torch.stack([each, 2 * each]) for each in x)).sum()
    )(*given),
    "vmap of grad": lambda loss, given: torch.func.vmap(torch.func.grad(loss))(
        *(torch.stack([each, 2 * each]) for each in given)
    ),
}
"""Two transformations within one another: `jacrev` is `vmap` of `vjp`. One alone is a part of each."""


@each
@pytest.mark.parametrize("kind", DERIVATIVES)
def test_derivatives_of_torch_func_are_in_one_compiled_graph(name: str, kind: str) -> None:
    torch._dynamo.reset()
    function, given = case(name, torch.float64, NARROW)
    derived = lambda *tensors: DERIVATIVES[kind](lambda *x: (function(*x) ** 3).sum(), tensors)
    compiled = torch.compile(derived, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), derived(*given))


def operator_arguments(name: str, dtype: Any) -> tuple[Any, ...]:
    """The arguments of an operator of `torch.ops.palladio`."""
    function = {"moe_mlp_with_inputs": "moe_mlp", "moe_mlp_gradients": "moe_mlp"}.get(name, name)
    integers, *tensors = sized(function, 9, dtype)
    if dtype in DTYPES:
        tensors = [*leaves(tensors)]
    if name == "gmm":
        return *tensors, integers, None, None, None, [0] * 9, False, ""
    if name == "tgmm":
        return tensors[0].detach().T.contiguous(), tensors[1], integers, None, None, None, [0] * 9, 4, ""
    if name.startswith("moe_mlp"):
        tokens, weights, up, down = tensors
        if name == "moe_mlp_with_inputs":
            integers = integers % len(up)  # inputs of an activation elsewhere are of any value
        layer = tokens, integers, weights, up, down, None, None, "swiglu", False, ""
        if name != "moe_mlp_gradients":
            return layer
        inputs = torch.ops.palladio.moe_mlp_with_inputs(*layer)[1].detach()
        plain = [each.detach() if isinstance(each, torch.Tensor) else each for each in layer]
        return torch.ones_like(tokens), inputs, [0, 1, 2, 3], *plain
    options = {"matmul": (None, [0] * 9, ""), "softmax": (None, ""), "attention": (False, None, None, None, "")}
    return *tensors, *options[name]


OPERATORS = [*FUNCTIONS, "moe_mlp_with_inputs", "moe_mlp_gradients"]
GENERAL = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_operator_passes_pytorchs_own_check(name: str, dtype: Any) -> None:
    found = torch.library.opcheck(getattr(torch.ops.palladio, name).default, operator_arguments(name, dtype))
    assert set(found) == {"test_schema", *GENERAL}
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", FLOATS_OF_8_BITS, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_operator_of_floats_of_8_bits_passes_what_pytorch_can_check(name: str, dtype: Any) -> None:
    # PyTorch neither compares nor sums these dtypes: no check of the schema's aliases, and none with gradients.
    operator = getattr(torch.ops.palladio, name).default
    found = torch.library.opcheck(operator, operator_arguments(name, dtype), test_utils=GENERAL)
    assert set(found.values()) == {"SUCCESS"}


# The layer of experts rounds to its dtype between its products too.
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "moe_mlp"])
@pytest.mark.parametrize(("dtype", "rtol"), [*zip(FLOATS_OF_8_BITS, (0.13, 0.25), strict=True)], ids=str)
def test_functions_of_floats_of_8_bits_have_gradients_and_tangents(name: str, dtype: Any, rtol: float) -> None:
    integers, *given = sized(name, 9, dtype)
    exact = [each.float() for each in given]
    factors = torch.linspace(-1, 1, FUNCTIONS[name](integers, *exact).shape[-1])
    narrow, wide = leaves(given), leaves(exact)
    for own in (narrow, wide):
        (FUNCTIONS[name](integers, *own).float() * factors).sum().backward()
    found = [(one.grad, other.grad) for one, other in zip(narrow, wide, strict=True)]
    function = case(name, dtype)[0]
    found.append(tuple(torch.func.jvp(function, own, own)[1] for own in (tuple(given), tuple(exact))))
    for one, other in found:
        assert one.dtype == dtype
        torch.testing.assert_close(one.float(), other, rtol=rtol, atol=0.05)


@each
@pytest.mark.parametrize("dtype", FLOATS_OF_8_BITS, ids=str)
def test_a_batch_of_floats_of_8_bits_is_each_of_its_elements(name: str, dtype: Any) -> None:
    function, given = case(name, dtype)
    batch = [torch.stack([tensor.float(), -tensor.float()]).to(dtype) for tensor in given]
    expected = torch.stack([function(*one).float() for one in zip(*batch, strict=True)])
    found = torch.func.vmap(function)(*batch)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=torch.finfo(dtype).eps, atol=0.01)


@pytest.mark.parametrize("dtype", FLOATS_OF_8_BITS, ids=str)
def test_the_layer_in_floats_of_8_bits_has_derivatives_of_both_modes(dtype: Any) -> None:
    # It rounds to its dtype between its products too: the bounds are of the whole, by norms.
    narrow, given = case("moe_mlp", dtype)
    wide, exact = case("moe_mlp", torch.float32)[0], tuple(each.float() for each in given)
    tangents = tuple(torch.linspace(-1, 1, each.numel()).reshape(each.shape).to(dtype) for each in given)
    found = [torch.func.jvp(narrow, given, tangents)[1]]
    expected = [torch.func.jvp(wide, exact, tuple(each.float() for each in tangents))[1]]
    factors = torch.linspace(-1, 1, given[0].shape[1])
    for function, own, results in ((narrow, given, found), (wide, exact, expected)):
        results += torch.func.grad(lambda *x, f=function: (f(*x).float() * factors).sum(), (0, 1, 2, 3))(*own)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert (one.float() - other).norm() < torch.finfo(dtype).eps * other.norm()


@pytest.mark.parametrize("name", ["gmm", "tgmm", "matmul"])
@pytest.mark.parametrize("dtype", FLOATS_OF_8_BITS, ids=str)
def test_a_wide_product_of_floats_of_8_bits_has_gradients(name: str, dtype: Any) -> None:
    products: dict[str, Callable[..., Any]] = {
        "gmm": lambda sizes, x, w: gmm(x, w, sizes, torch.float32),
        "tgmm": lambda sizes, x, y: tgmm(x.T, y, sizes, torch.float32),
        "matmul": lambda _, x, y: matmul(x, y, preferred_element_type=torch.float32),
    }
    integers, *given = sized(name, 9, dtype)
    narrow, wide = leaves(given), leaves([each.float() for each in given])
    for own in (narrow, wide):
        products[name](integers, *own).square().sum().backward()
    for one, other in zip(narrow, wide, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert one.grad.dtype == dtype
        torch.testing.assert_close(one.grad, other.grad.to(dtype))


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_take_no_integers_as_floats(name: str) -> None:
    with pytest.raises(pl.PalladioTypeError, match="floats are needed"):
        getattr(torch.ops.palladio, name).default(*operator_arguments(name, torch.int8))
