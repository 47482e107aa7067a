"""Products: dtypes and shapes as JAX has them, values against float64."""

from __future__ import annotations

import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palladio.numpy as jnp
from palladio import lax
from palladio.base.errors import PalladioError
from palladio.ops.arrays.dot import dot_general
from palladio.types import dtypes
from palladio.types.types import ArrayType

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def random_array(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if dtypes.is_float(np.dtype(dtype)):
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(int(limits.min), int(limits.max), shape, dtype=dtype, endpoint=True)


def plain(lhs: Any, rhs: Any, dtype: Any) -> Any:
    return dot_general.eval(lhs, rhs, contracting=((1,), (0,)), batch=((), ()), dtype=np.dtype(dtype))[0]


@pytest.mark.parametrize("left", FLOATS)
@pytest.mark.parametrize("right", FLOATS)
def test_floats_of_any_two_dtypes_are_multiplied_exactly_and_summed_in_float32(left: Any, right: Any) -> None:
    lhs, rhs = random_array((5, 300), left), random_array((300, 4), right, 1)
    exact = lhs.astype(np.float64) @ rhs.astype(np.float64)
    scale = np.abs(lhs).astype(np.float64) @ np.abs(rhs).astype(np.float64)
    for dtype in FLOATS[:4]:
        found = plain(lhs, rhs, dtype)
        assert found.dtype == dtype
        summed_in = np.float64 if np.float64 in (left, right, dtype) else np.float32
        allowed = 300 * np.finfo(summed_in).eps * scale + float(ml_dtypes.finfo(dtype).eps) * np.abs(exact)
        assert (np.abs(found.astype(np.float64) - exact) <= allowed).all()


def test_a_sum_is_rounded_once() -> None:
    lhs = np.array([[1.0] + [2.0**-9] * 4], ml_dtypes.bfloat16)  # each small one alone would vanish beside the 1
    rhs = np.ones((5, 1), ml_dtypes.bfloat16)
    assert float(plain(lhs, rhs, ml_dtypes.bfloat16)[0, 0]) == 1.0 + 2.0**-7


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("result", [np.int32, np.uint8, np.int64, np.float32])
def test_integers_are_exact_and_wrap_around(dtype: Any, result: Any) -> None:
    lhs, rhs = random_array((3, 7), dtype), random_array((7, 2), dtype, 1)
    exact = lhs.astype(object) @ rhs.astype(object)
    found = plain(lhs, rhs, result)
    if result is np.float32:
        if dtype().itemsize < 4:
            np.testing.assert_array_equal(found, exact.astype(np.float64).astype(np.float32))
        return
    bits = np.iinfo(result).bits
    expected = (exact % 2**bits).astype(np.uint64).astype(f"u{bits // 8}").view(result)
    np.testing.assert_array_equal(found, expected)


@st.composite
def products(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Any, Any]:
    """Shapes of two arrays, and their contracting and batch axes, in any order."""
    counts = [draw(st.integers(0, 2)) for _ in range(4)]
    sizes = [tuple(draw(st.integers(0, 3)) for _ in range(count)) for count in counts]
    batch, summed, left, right = sizes
    places = []
    shapes = []
    for free in (left, right):
        own = (*batch, *summed, *free)
        order = draw(st.permutations(range(len(own))))
        shapes.append(tuple(own[axis] for axis in order))
        where = [order.index(axis) for axis in range(len(own))]
        places.append((tuple(where[: len(batch)]), tuple(where[len(batch) : len(batch) + len(summed)])))
    (left_batch, left_summed), (right_batch, right_summed) = places
    return shapes[0], shapes[1], (left_summed, right_summed), (left_batch, right_batch)


def with_letters(lhs: Any, rhs: Any, contracting: Any, batch: Any) -> Any:
    """The product by np.einsum."""
    left, right = list(range(lhs.ndim)), [50 - axis for axis in range(rhs.ndim)]
    for pairs in (contracting, batch):
        for a, b in zip(*pairs, strict=True):
            right[b] = left[a]
    free = [letter for n, letter in enumerate(left) if n not in (*contracting[0], *batch[0])]
    free += [letter for n, letter in enumerate(right) if n not in (*contracting[1], *batch[1])]
    return np.einsum(lhs, left, rhs, right, [left[a] for a in batch[0]] + free)


@given(products(), st.sampled_from([np.float32, np.float64, np.int8]))
def test_any_axes_are_contracted_and_batched(case: Any, dtype: Any) -> None:
    left, right, contracting, batch = case
    lhs, rhs = random_array(left, dtype), random_array(right, dtype, 1)
    result = np.dtype(np.int32 if dtype is np.int8 else dtype)
    params = {"contracting": contracting, "batch": batch, "dtype": result}
    found = dot_general.eval(lhs, rhs, **params)[0]
    wanted = dot_general.type(ArrayType(left, lhs.dtype), ArrayType(right, rhs.dtype), **params)[0]
    assert ArrayType(np.shape(found), found.dtype) == wanted
    wide = np.float64 if dtypes.is_float(result) else np.int64
    np.testing.assert_allclose(found, with_letters(lhs.astype(wide), rhs.astype(wide), contracting, batch), atol=1e-4)


def test_lax_takes_dimension_numbers() -> None:
    lhs, rhs = random_array((2, 3, 4), np.float32), random_array((5, 2, 4), np.float32, 1)
    found = lax.dot_general(lhs, rhs, (((-1,), (2,)), ((0,), (1,))))
    np.testing.assert_allclose(found, np.einsum("bmk,nbk->bmn", lhs, rhs), rtol=1e-5, atol=1e-5)
    assert lax.dot(lhs[0], rhs[0].T, preferred_element_type=jnp.float64).dtype == np.float64
    np.testing.assert_allclose(lax.batch_matmul(lhs, np.moveaxis(rhs, 0, 2)), found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("preferred", [np.int32, np.bool_])
def test_floats_are_multiplied_before_their_sum_becomes_another_kind(preferred: Any) -> None:
    x, y = np.array([1.5, 2.5], np.float32), np.array([2.0, 2.0], np.float32)
    assert jnp.dot(x, y, preferred_element_type=preferred) == preferred(8)


SHAPES = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4))]
SHAPES += [
    ((5, 2, 3), (5, 3, 4)),
    ((1, 5, 2, 3), (6, 1, 3, 4)),
    ((5, 1, 2, 3), (3,)),
    ((3,), (2, 3, 4)),
    ((0, 3), (3, 2)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_and_dot_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = random_array(left, np.float32), random_array(right, np.float32, 1)
    for name in ("matmul", "dot"):
        if name == "matmul" or right[max(len(right) - 2, 0)] == left[-1]:
            expected = getattr(np, name)(a, b)
            found = getattr(jnp, name)(a, b)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_other_products_are_those_of_numpy() -> None:
    a, b = random_array((2, 3, 4), np.float32), random_array((4, 3, 5), np.float32, 1)
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(jnp.tensordot(a, b, ((1, -1), (1, 0))), np.tensordot(a, b, ((1, -1), (1, 0))), **close)
    np.testing.assert_allclose(jnp.tensordot(a, b, 1), np.tensordot(a, b, 1), **close)
    np.testing.assert_allclose(jnp.inner(a, b.T), np.inner(a, b.T), **close)
    np.testing.assert_allclose(jnp.outer(a, b), np.outer(a, b), **close)
    np.testing.assert_allclose(jnp.vdot(a, a), np.vdot(a, a), **close)
    np.testing.assert_allclose(jnp.dot(a, 3), a * 3, **close)


MIXES = [
    (np.float32, ml_dtypes.bfloat16),
    (np.float16, ml_dtypes.bfloat16),
    (np.float16, np.float16),
    (np.int8, np.int8),
]
MIXES += [(np.int8, np.uint8), (np.int32, np.float16), (np.int8, np.float32), (np.bool_, np.bool_), (np.bool_, np.int8)]


@pytest.mark.parametrize(("left", "right"), MIXES)
@pytest.mark.parametrize("preferred", [None, np.float32, np.int32])
def test_the_dtype_of_a_product_is_the_one_of_jax(left: Any, right: Any, preferred: Any) -> None:
    if np.bool_ in (left, right) or (preferred is np.int32 and dtypes.is_float(np.dtype(right))):
        preferred = None
    a, b = np.ones((2, 3), left), np.ones((3, 2), right)
    for function, theirs in (
        (jnp.matmul, jax.numpy.matmul),
        (jnp.dot, jax.numpy.dot),
        (_einsum(jnp), _einsum(jax.numpy)),
    ):
        found = function(a, b, preferred_element_type=preferred)
        expected = jax.eval_shape(lambda a, b, f=theirs: f(a, b, preferred_element_type=preferred), a, b)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found.astype(np.float32), np.full((2, 2), 1 if found.dtype == bool else 3))


def _einsum(library: Any) -> Any:
    return lambda a, b, **options: library.einsum("ij,jk->ik", a, b, **options)


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bij,bkj->kbi", (2, 3, 4), (2, 5, 4)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,ij->j", (2, 3), (2, 3)),
    ("i,j->ji", (2,), (3,)),
    ("ijk->kji", (2, 3, 4)),
    ("ijk->j", (2, 3, 4)),
    ("ba", (2, 3)),
    ("ij->", (2, 3)),
    ("ijk,j->i", (2, 3, 4), (3,)),
    ("...ij,...jk->...ik", (6, 1, 2, 3), (5, 3, 4)),
    ("...ij,jk", (5, 2, 3), (3, 4)),
    ("i...,i...->...", (2, 3), (2, 1)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("ij , jk -> ik", (2, 3), (3, 4)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    (",ij->ji", (), (2, 3)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda case: case[0])
def test_einsum_is_that_of_numpy(case: Any) -> None:
    subscripts, *shapes = case
    arrays = [random_array(shape, np.float32, seed) for seed, shape in enumerate(shapes)]
    expected = np.einsum(subscripts, *arrays)
    found = jnp.einsum(subscripts, *arrays)
    assert (np.shape(found), found.dtype) == (np.shape(expected), np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, ml_dtypes.bfloat16, np.bool_])
def test_einsum_of_one_operand_keeps_its_dtype(dtype: Any) -> None:
    x = np.ones((2, 3), dtype)
    found, expected = jnp.einsum("ij->i", x), jax.eval_shape(lambda x: jax.numpy.einsum("ij->i", x), x)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)


A, B = np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32)
ERRORS = {
    "matmul of sizes that differ": (
        lambda: jnp.matmul(A, B),
        "the inner sizes of a matrix product differ\n  expected: [..., m, k] and [..., k, n]\n"
        "  got:      f32[2,3] and f32[4,5]",
    ),
    "matmul of a scalar": (
        lambda: jnp.matmul(A, 2.0),
        "matmul takes no scalars\n  got:      f32[2,3] and f32[]\n  hint:     use *",
    ),
    "dot of sizes that differ": (
        lambda: jnp.dot(A, B),
        "the summed sizes of a dot differ\n  got:      f32[2,3] and f32[4,5]",
    ),
    "dot_general of sizes that differ": (
        lambda: lax.dot_general(A, B, (((1,), (0,)), ((), ()))),
        "the contracting axes have different sizes\n  got:      f32[2,3] over axes (1,) and f32[4,5] over axes (0,)",
    ),
    "an axis twice": (
        lambda: lax.dot_general(A, A, (((1,), (1,)), ((1,), (1,)))),
        "the contracting and batch axes of lhs are different axes of it\n  expected: below 2\n  got:      (1, 1)",
    ),
    "an axis out of range": (
        lambda: lax.dot_general(A, A, (((2,), (1,)), ((), ()))),
        "axis: the array has no such axis, its rank is 2\n  expected: -2 <= axis < 2\n  got:      2",
    ),
    "tensordot of too many axes": (
        lambda: jnp.tensordot(A, B, 3),
        "axis: the array has no such axis, its rank is 2\n  expected: -2 <= axis < 2\n  got:      2",
    ),
    "einsum with too few terms": (
        lambda: jnp.einsum("ij->i", A, B),
        "subscripts: one term for each operand\n  expected: 2 terms\n  got:      'ij->i'",
    ),
    "einsum with a strange letter": (
        lambda: jnp.einsum("i?,jk->ik", A, B),
        "subscripts: the subscripts do not parse\n  got:      'i?,jk->ik'",
    ),
    "einsum with an output letter from nowhere": (
        lambda: jnp.einsum("ij->iz", A),
        "subscripts: the subscripts do not parse\n  got:      'ij->iz'",
    ),
    "einsum of a diagonal": (
        lambda: jnp.einsum("ii->i", A),
        "subscripts: a letter stands twice in one operand: diagonals are not taken\n  got:      'ii->i'",
    ),
    "einsum of another rank": (
        lambda: jnp.einsum("ijk->i", A),
        "subscripts: the term 'ijk' has another rank than its operand\n  expected: (2, 3)\n  got:      'ijk->i'",
    ),
    "einsum of two sizes": (
        lambda: jnp.einsum("ij,jk->ik", A, B),
        "subscripts: the letter 'j' stands for two sizes\n  expected: 3\n  got:      4",
    ),
    "dtypes without a common one": (
        lambda: jnp.matmul(A.astype(ml_dtypes.float8_e5m2), A.T.astype(ml_dtypes.float8_e4m3fn)),
        "the dtypes do not promote to a common one\n  got:      float8_e5m2, float8_e4m3fn\n"
        "  hint:     convert one explicitly with .astype(dtype)",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_what_is_wrong(name: str) -> None:
    act, text = ERRORS[name]
    with pytest.raises(PalladioError) as caught:
        act()
    caught.value.location = caught.value.__traceback__ = None
    assert str(caught.value) == text


def test_sizes_of_zero_sum_to_zero() -> None:
    found = jnp.matmul(np.ones((2, 0), np.float32), np.ones((0, 3), np.float32))
    np.testing.assert_array_equal(found, np.zeros((2, 3)))
    assert math.prod(jnp.einsum("ij,jk->ik", np.ones((0, 2)), np.ones((2, 3))).shape) == 0
