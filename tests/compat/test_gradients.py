"""`jax.vjp`, `jax.grad` and `jax.custom_vjp`: gradients against differences of the function itself in float64."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import compat
from palladio.compat.derivatives import RULES
from palladio.trace.trace import current_trace
from tests.errors.shown import shows

with compat.jax():
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.experimental import enable_x64
    from jax.experimental import pallas as jpl
    from jax.experimental.pallas import tpu as pltpu


@pytest.fixture(autouse=True)
def evaluated() -> Iterator[None]:
    """What is under test are equations, the same on every executor."""
    with pl.executor("reference"), enable_x64():
        yield


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def distance(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(np.subtract(found, expected)) / np.linalg.norm(expected))


X, Y, POSITIVE = drawn(4, 5), drawn(5, 3), np.abs(drawn(4, 5)) + 0.5
ROWS = np.array([0, 2, 2, 1])

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "arithmetic": (lambda x, y: jnp.sum(x * y - x / y + 3 * -x), (X, POSITIVE)),
    "extrema": (lambda x: jnp.max(x) * jnp.min(x) + jnp.sum(jnp.maximum(x, 0.1) + jnp.minimum(x, 0.3)), (X,)),
    "clip": (lambda x: jnp.sum(lax.clamp(-0.5, x, 0.5) ** 2 + jnp.abs(x)), (X,)),
    "powers": (lambda x, y: jnp.sum(x**y + x**2.5 + lax.integer_pow(x, -2) + x**0), (POSITIVE, X)),
    "exponentials": (lambda x: sum(jnp.sum(f(x)) for f in (jnp.exp, jnp.exp2, jnp.expm1, lax.logistic)), (X,)),
    "logarithms": (
        lambda x: sum(jnp.sum(f(x)) for f in (jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.cbrt)),
        (POSITIVE,),
    ),
    "circular": (lambda x: sum(jnp.sum(f(x)) for f in (jnp.sin, jnp.cos, jnp.tan, lax.erf)), (X,)),
    "hyperbolic": (lambda x: sum(jnp.sum(f(x)) for f in (jnp.sinh, jnp.cosh, jnp.tanh)), (X,)),
    "steps": (lambda x: sum(jnp.sum(x * f(x)) for f in (jnp.floor, jnp.ceil, jnp.round, jnp.sign)), (X,)),
    "select": (lambda x, y: jnp.sum(jnp.where(x > 0, x * y, y / x)), (X, POSITIVE)),
    "shapes": (
        lambda x: jnp.sum(jnp.sin(jnp.concatenate([x.T.reshape(4, 5), jnp.flip(x, 1)], axis=0)) * drawn(8, 5)),
        (X,),
    ),
    "pad": (lambda x, v: jnp.sum(lax.pad(x, v, ((1, 2, 1), (0, -1, 0))) ** 2), (X, np.array(0.7))),
    "sums": (lambda x: jnp.sum(jnp.cumsum(x, axis=1) ** 2) + jnp.sum(jnp.var(x, axis=0)), (X,)),
    "elements": (lambda x: jnp.sum(x[ROWS] * x[ROWS]) + jnp.sum(x[1:3, ::2] ** 3) + x[0, -1], (X,)),
    "updates": (
        lambda x, y: jnp.sum(x.at[1:3].set(y) ** 2) + jnp.sum(x.at[ROWS].add(y[0]) ** 2),
        (X, drawn(2, 5)),
    ),
    "product": (lambda x, y: jnp.sum(jnp.sin(x @ y)), (X, Y)),
    "batched product": (
        lambda x, y: jnp.sum(jnp.sin(lax.dot_general(x, y, (((3, 1), (0, 2)), ((0,), (3,)))))),
        (drawn(2, 3, 4, 5), drawn(5, 6, 3, 2)),
    ),
    "scalar": (lambda x, s: jnp.sum(x * s + s), (X, np.array(2.0))),
    "conversion": (lambda x: jnp.sum(x.astype(np.float32).astype(np.float64) * x), (X,)),
    "vmap": (lambda x, y: jnp.sum(jax.vmap(lambda r, y: jnp.sin(r * y), (1, None), 1)(x, y) ** 2), (X, drawn(4))),
    "twice": (lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(jnp.sin(x) * x))(x) ** 2), (X,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_is_what_small_steps_measure(name: str) -> None:
    function, args = FUNCTIONS[name][0], [arg.view(jax.Array) for arg in FUNCTIONS[name][1]]
    step = 1e-3 if name == "conversion" else 1e-5
    value, gradients = jax.value_and_grad(function, argnums=tuple(range(len(args))))(*args)
    assert distance(value, function(*args)) < 1e-12
    for n, (arg, gradient) in enumerate(zip(args, gradients, strict=True)):
        assert gradient.dtype == np.float64
        along = np.random.default_rng(n).standard_normal(np.shape(arg))
        ahead, behind = (
            function(*args[:n], jnp.asarray(arg + sign * step * along), *args[n + 1 :]) for sign in (1, -1)
        )
        measured = float(ahead - behind) / (2 * step)
        assert abs(np.sum(gradient * along) - measured) < 1e-3 * (1 + abs(measured)), n


@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - {"vmap"}))  # a loop, by its rule, once
def test_a_tangent_is_the_gradient_along_it(name: str) -> None:
    function, args = FUNCTIONS[name][0], tuple(arg.view(jax.Array) for arg in FUNCTIONS[name][1])
    along = tuple(np.random.default_rng(n).standard_normal(np.shape(arg)) for n, arg in enumerate(args))
    gradients = jax.grad(function, argnums=tuple(range(len(args))))(*args)
    value, tangent = jax.jvp(function, args, along)
    expected = sum(np.sum(gradient * step) for gradient, step in zip(gradients, along, strict=True))
    assert distance(value, function(*args)) < 1e-12
    assert abs(tangent - expected) < 1e-6 * (1 + abs(expected))


def test_a_tangent_has_the_structure_of_the_result() -> None:
    def function(x: Any, n: Any) -> Any:
        return {"all": jnp.sin(x) * n, "count": n + 1, "none": jnp.ones(2)}, x

    nothing = np.zeros((), jax.dtypes.float0)
    (result, tangent, aux) = jax.jvp(function, (X, np.int32(3)), (X, nothing), True)
    assert distance(tangent["all"], 3 * np.cos(X) * X) < 1e-12
    assert (tangent["count"].dtype, tangent["none"].tolist(), result["count"]) == (jax.dtypes.float0, [0, 0], 4)
    assert np.array_equal(aux, X)
    assert float(jax.jit(lambda x: jax.jvp(lambda x: x**3, (x,), (1.0,))[1])(2.0)) == 12


def test_a_tangent_of_another_shape() -> None:
    with shows(
        TypeError,
        """
        tangents: a tangent has the structure and the shapes of its argument
          expected: (*,) of shapes (2,)
          got:      (*,) of shapes (3,)
          test_gradients.py:N, in test_a_tangent_of_another_shape
            jax.jvp(jnp.sin, (np.ones(2),), (np.ones(3),))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        jax.jvp(jnp.sin, (np.ones(2),), (np.ones(3),))


@pytest.mark.parametrize(
    ("primal", "tangent", "expected", "got"),
    [
        (2, 1, "float0", "int64"),
        (np.float32(2), np.float16(1), "float32", "float16"),
        (np.ones(()), np.complex64(1), "float64", "complex64"),
        (np.ones(()), np.zeros((), jax.dtypes.float0), "float64", "[('float0', 'V')]"),
    ],
)
def test_a_tangent_of_another_dtype(primal: Any, tangent: Any, expected: str, got: str) -> None:
    with pytest.raises(TypeError, match=r"tangent arguments to jax\.jvp do not match; dtypes must be equal") as caught:
        jax.jvp(lambda x: x * 2.0, (primal,), (tangent,))
    assert str(caught.value).splitlines()[:4] == [
        "tangents: a tangent has the dtype of its argument, float0 where that is not a float",
        f"  expected: {expected}",
        f"  got:      {got}",
        "  hint:     np.zeros(np.shape(x), jax.dtypes.float0) is the tangent of integers",
    ]


def test_complex_numbers_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"primals: an argument of a dtype that Palladio does not have"):
        jax.jvp(lambda x: x * x, (np.complex64(2),), (np.complex64(1),))


def test_every_rule_is_measured() -> None:
    used: set[str] = set()
    for function, args in FUNCTIONS.values():
        used |= {eqn.op.name for eqn in _equations(pl.jit(function), args)}
    assert set(RULES) - used == set()


def _equations(function: Any, args: Any) -> Any:
    traced: list[Any] = []

    def inside(*given: Any) -> Any:
        result = function(*given)
        traced.extend(current_trace().eqns)  # type: ignore[union-attr]
        return result

    pl.eval_shape(inside, *args)
    return traced


def test_equal_elements_share_a_gradient() -> None:
    ones = np.ones(4)
    assert jax.grad(jnp.max)(ones).tolist() == [0.25] * 4
    assert jax.grad(lambda x: jnp.maximum(x, 1.0).sum())(ones).tolist() == [0.5] * 4


def test_a_gradient_has_the_dtype_and_the_structure_of_its_argument() -> None:
    tree = {"a": np.ones(3, np.float32), "b": (np.ones(2, np.float16),)}
    gradient = jax.grad(lambda t: (t["a"].sum() * t["b"][0].sum()).astype(np.float32))(tree)
    assert gradient["a"].dtype == np.float32
    assert gradient["b"][0].dtype == np.float16
    assert (gradient["a"].tolist(), gradient["b"][0].tolist()) == ([2, 2, 2], [3, 3])
    assert isinstance(gradient["a"], jax.Array)


def test_what_the_result_does_not_depend_on_has_a_gradient_of_zero() -> None:
    gradients = jax.grad(lambda x, y, z: x.sum() + lax.stop_gradient(z * 2).sum(), argnums=(0, 1, -1))(X, Y, Y)
    assert [np.unique(each).tolist() for each in gradients] == [[1], [0], [0]]


def test_other_results_are_passed_on() -> None:
    def function(x: Any) -> Any:
        return jnp.sum(x * x), {"twice": 2 * x}

    (value, aux), gradient = jax.value_and_grad(function, has_aux=True)(X)
    assert distance(value, np.sum(X * X)) < 1e-12
    assert distance(aux["twice"], 2 * X) == distance(gradient, 2 * X) == 0
    assert jax.grad(function, has_aux=True)(X)[1].keys() == {"twice"}
    assert jax.vjp(function, X, has_aux=True)[2].keys() == {"twice"}


def test_integers_are_constant() -> None:
    value, back = jax.vjp(lambda x, n: x[n], X, 2)
    assert value.shape == (5,)
    gradient, none = back(np.ones(5))
    assert (none.shape, none.dtype) == ((), jax.dtypes.float0)
    assert (gradient[2].tolist(), gradient.sum()) == ([1] * 5, 5)
    assert jax.grad(lambda n, x: n * x, allow_int=True)(3, 2.0).dtype == jax.dtypes.float0
    inner = jax.grad(lambda x: jax.vjp(lambda x, n: x[n].sum(), x, 2)[1](x.sum())[0].sum())(X)
    assert distance(inner, np.full_like(X, 5)) == 0
    with pytest.raises(TypeError) as caught:
        jax.grad(lambda x: x * 2.0)(np.arange(3))
    assert str(caught.value).splitlines()[:3] == [
        "args[0]: a gradient is by floats",
        "  got:      int64",
        "  hint:     allow_int=True gives float0 for what is not",
    ]


def doubling(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = 2 * x_ref[...]


@jax.custom_vjp
def doubled(x: Any) -> Any:
    return jpl.pallas_call(doubling, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


doubled.defvjp(lambda x: (doubled(x), None), lambda _, g: (doubled(g),))


def test_a_kernel_is_differentiated_by_the_rule_it_has() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(jnp.sin(doubled(x)) * doubled(x))

    expected = 2 * (np.cos(2 * X) * 2 * X + np.sin(2 * X))
    assert distance(jax.grad(loss)(X), expected) < 1e-12
    assert distance(jax.jit(jax.grad(loss))(X), expected) < 1e-12
    assert distance(jax.vjp(jax.jit(doubled), X)[1](Y.sum() * X)[0], 2 * Y.sum() * X) < 1e-12


def test_the_gradients_of_a_kernel_library_are_those_of_its_rules() -> None:
    pytest.importorskip("jax")
    with compat.jax():
        from jax.experimental.pallas.ops.tpu.megablox import ops
    lhs, rhs = (drawn(*shape).astype(np.float32) for shape in ((16, 8), (2, 8, 8)))
    cotangent = drawn(16, 8).astype(np.float32)
    gmm = functools.partial(ops.gmm, preferred_element_type=np.float32, tiling=(8, 8, 8))
    out, back = jax.vjp(jax.jit(gmm), lhs, rhs, np.array([5, 11], np.int32))
    of_lhs, of_rhs, _ = back(cotangent)
    parts = [(slice(0, 5), 0), (slice(5, 16), 1)]
    wide, each, g = (array.astype(np.float64) for array in (lhs, rhs, cotangent))
    assert distance(out, np.concatenate([wide[rows] @ each[n] for rows, n in parts])) < 1e-6
    assert distance(of_lhs, np.concatenate([g[rows] @ each[n].T for rows, n in parts])) < 1e-6
    assert distance(of_rhs, np.stack([wide[rows].T @ g[rows] for rows, n in parts])) < 1e-6


def test_a_gradient_does_not_get_lost_in_a_reference() -> None:
    def kept(x: Any) -> Any:
        ref = jax.new_ref(jnp.zeros(3, np.float64))
        ref[...] = x * x
        return ref[...].sum()

    with pytest.raises(NotImplementedError, match="Palladio does not differentiate load"):
        jax.grad(kept)(np.ones(3))


def test_a_kernel_without_a_rule_is_refused() -> None:
    with pytest.raises(NotImplementedError) as caught:
        jax.grad(lambda x: doubled.fun(x).sum())(X)
    assert str(caught.value).splitlines()[:2] == [
        "Palladio does not differentiate grid_call",
        "  hint:     jax.custom_vjp gives a function, and the kernels that it calls, derivatives of their own",
    ]
    assert "return jpl.pallas_call(doubling" in str(caught.value)


@pytest.mark.parametrize("function", [lambda x: x * x, jnp.sin, lambda x: 1 / jnp.exp(x), jnp.tanh], ids=range(4))
def test_a_kernel_without_a_grid_has_a_forward_derivative(function: Any) -> None:
    x, y, along = X[0], X[1, :2], (POSITIVE[0], POSITIVE[1, :2])

    def kernel(x_ref: Any, y_ref: Any, out_ref: Any, found_ref: Any) -> None:
        found_ref[...] = function(x_ref[...])
        out_ref[jnp.arange(2)] = found_ref[...][:2] * y_ref[...]
        out_ref[2] = jnp.sum(found_ref[...])

    out = jax.ShapeDtypeStruct((3,), x.dtype)
    call = jpl.pallas_call(kernel, out, scratch_shapes=[pltpu.VMEM(x.shape, x.dtype)])

    def plain(x: Any, y: Any) -> Any:
        found = function(x)
        return jnp.concatenate([found[:2] * y, jnp.sum(found)[None]])

    for got, expected in zip(jax.jvp(call, (x, y), along), jax.jvp(plain, (x, y), along), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_kernel_that_copies_has_no_forward_derivative() -> None:
    out = jax.ShapeDtypeStruct((4,), np.float32)
    with pytest.raises(ValueError, match="Palladio does not differentiate grid_call"):
        jax.jvp(jpl.pallas_call(pltpu.sync_copy, out), (np.ones(4, np.float32),), (np.ones(4, np.float32),))


def test_a_kernel_prints_once_under_a_forward_derivative(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        pl.debug_print("first {}", x_ref[0])

        @jpl.when(x_ref[1] > 0)
        def _() -> None:
            pl.debug_print("second {}", x_ref[1])

        out_ref[...] = x_ref[...] * 2

    x = np.arange(1, 3, dtype=np.float32)
    _, tangent = jax.jvp(jpl.pallas_call(kernel, jax.ShapeDtypeStruct((2,), np.float32)), (x,), (x,))
    assert tangent.tolist() == [2, 4]
    assert capsys.readouterr().out == "first 1.0\nsecond 2.0\n"


def test_a_kernel_takes_the_gradient_of_a_function() -> None:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[0] = jax.grad(jnp.sin)(x_ref[0])

    out = jpl.pallas_call(kernel, jax.ShapeDtypeStruct((1,), X.dtype))(X[0, :1])
    np.testing.assert_allclose(out, np.cos(X[0, :1]), rtol=1e-6)


def test_arguments_without_a_gradient_may_be_named() -> None:
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,), nondiff_argnames=("power", "scale"))
    def scaled(name: str, x: Any, scale: float, power: int) -> Any:
        return scale * x**power

    seen: list[Any] = []

    def backward(name: str, scale: float, power: int, x: Any, g: Any) -> Any:
        seen.append((name, scale, power))
        return (g * scale * power * x ** (power - 1),)

    scaled.defvjp(lambda name, x, scale, power: (scaled(name, x, scale, power), x), backward)
    gradient = jax.grad(lambda x: scaled("cube", x, 2.0, 3).sum())(X)
    np.testing.assert_allclose(gradient, 6 * X**2)
    assert seen == [("cube", 2.0, 3)]


def test_a_forward_derivative_of_its_own_is_used() -> None:
    """Rules that are not the functions' derivatives, to tell the two apart."""

    @jax.custom_jvp
    def rounded(x: Any, y: Any) -> Any:
        return jnp.round(x) * y, jnp.argmax(x)

    @rounded.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        found = rounded(x, y)
        return found, (dx * y + 7 * found[0] * dy, 0)

    (value, _), (tangent, _) = jax.jvp(rounded, (X, POSITIVE), (POSITIVE, X))
    np.testing.assert_array_equal(value, np.round(X) * POSITIVE)
    assert distance(tangent, POSITIVE**2 + 7 * value * X) < 1e-14
    of_x, of_y = jax.grad(lambda x, y: rounded(x, y)[0].sum(), (0, 1))(X, POSITIVE)
    assert distance(of_x, POSITIVE) < 1e-14
    assert distance(of_y, 7 * np.round(X) * POSITIVE) < 1e-14


def test_forward_derivatives_are_given_by_each_argument() -> None:
    product = jax.custom_jvp(lambda x, y, z: x * y + z)
    product.defjvps(lambda t, out, x, y, z: out * t, None, lambda t, out, x, y, z: 5 * t)
    assert jax.grad(product, (0, 1, 2))(2.0, 3.0, 1.0) == (7, 0, 5)
    product.defjvps(None, None, None)
    assert jax.grad(product, (0, 1, 2))(2.0, 3.0, 1.0) == (0, 0, 0)


def test_a_forward_derivative_takes_arguments_that_are_not_differentiated_first() -> None:
    scaled = jax.custom_jvp(lambda f, x: f(x), nondiff_argnums=(0,))
    scaled.defjvp(lambda f, primals, tangents: (f(*primals), f(2.0) * tangents[0]))
    assert jax.jvp(lambda x: scaled(lambda x: x * x, x), (3.0,), (10.0,)) == (9, 40)


def test_arguments_that_are_not_differentiated_come_first_to_the_rule() -> None:
    @functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
    def scaled(x: Any, y: Any, n: Any, shift: float = 0.5) -> Any:
        return n * x * y + shift

    scaled.defvjp(
        lambda x, y, n, shift: (n * x * y + shift, (x, y)), lambda n, kept, g: (n * kept[1] * g, n * kept[0] * g, None)
    )
    value, back = jax.vjp(functools.partial(scaled, 3.0, n=2.0), 5.0)
    assert (value, back(1.0)) == (30.5, (6.0,))


def test_a_rule_returns_a_gradient_for_each_argument() -> None:
    rule = jax.custom_vjp(lambda x, y: x * y)
    rule.__name__ = "product"
    rule.fun.__name__ = "product"
    rule.defvjp(lambda x, y: (x * y, y), lambda y, g: (g * y,))
    with pytest.raises(TypeError) as caught:
        jax.grad(rule)(1.0, 2.0)
    assert str(caught.value).splitlines()[:3] == [
        "the backward rule of product returns a gradient for each argument, in its structure, or None",
        "  expected: (*, *)",
        "  got:      (*,)",
    ]


def test_what_a_rule_does_not_see_is_refused() -> None:
    with pytest.raises(NotImplementedError) as caught:
        jax.grad(lambda w: jax.vmap(lambda x: x * w)(X).sum())(np.ones(5))
    assert str(caught.value).splitlines()[:2] == [
        "a function under jax.vmap or jax.custom_vjp closes over a value that the gradient depends on",
        "  hint:     pass it as an argument; in_axes=None passes it whole",
    ]


def test_refusals_name_what_was_given() -> None:
    with pytest.raises(TypeError) as caught:
        jax.grad(3)
    assert str(caught.value).splitlines()[:2] == ["fun: what is differentiated is a function", "  got:      3"]
    with pytest.raises(TypeError) as caught:
        jax.grad(lambda x: x * x)(X)
    assert str(caught.value).splitlines()[:3] == [
        "fun: a gradient is that of a function whose result is one float",
        "  got:      f64[4,5]",
        "  hint:     jax.vjp takes the gradient of any result",
    ]
    with pytest.raises(ValueError) as caught:
        jax.grad(lambda x: x, argnums=2)(1.0)
    assert str(caught.value).splitlines()[:3] == [
        "argnums: the function is called with fewer arguments",
        "  expected: below 1",
        "  got:      2",
    ]
    with pytest.raises(TypeError) as caught:
        jax.vjp(lambda x: (x, x), 1.0)[1](1.0)
    assert str(caught.value).splitlines()[:3] == [
        "the gradient has the structure of the result",
        "  expected: (*, *)",
        "  got:      one value",
    ]


def test_integers_are_values_for_a_function_that_needs_them() -> None:
    def of_groups(x: Any, sizes: Any) -> Any:
        start, found = 0, []
        for number, size in enumerate(sizes):
            found.append((number + 1) * x[start : start + size] ** 2)
            start += size
        return jnp.concatenate(found)

    x, sizes = jnp.asarray(X[0]), jnp.asarray(np.array([2, 0, 3]))
    result, pull = jax.vjp(of_groups, x, sizes)
    scale = np.array([1, 1, 3, 3, 3])
    np.testing.assert_allclose(result, scale * X[0] ** 2)
    gradient, of_sizes = pull(jnp.ones(5))
    np.testing.assert_allclose(gradient, 2 * scale * X[0])
    assert of_sizes.dtype == jax.dtypes.float0


def test_integers_that_are_values_may_be_big_endian() -> None:
    for dtype in (">i4", ">i8", "<i4"):
        result, _ = jax.vjp(lambda x, size: jnp.sum(x[: int(size)]), jnp.asarray(X[0]), np.array(2, dtype))
        np.testing.assert_allclose(result, X[0][:2].sum())


def test_a_gradient_of_large_arrays_is_not_traced_on_every_call() -> None:
    x = jnp.ones(70_000)

    with warnings.catch_warnings():
        warnings.simplefilter("error", pl.RetracedWarning)
        for _ in range(4):
            result, pull = jax.vjp(lambda x: jnp.sum(x**3), x)
            np.testing.assert_allclose(pull(np.ones_like(result))[0], 3 * np.ones(70_000))
