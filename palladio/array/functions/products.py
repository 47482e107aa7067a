"""Products of arrays, with NumPy's names: all of them are `dot_general`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.array.axes import normalize_axis
from palladio.array.convert import (
    Array,
    ArrayLike,
    array_type,
    broadcast_shapes,
    broadcast_to,
    call,
    cast,
    is_weak,
    mark_weak,
    result_type,
)
from palladio.array.functions.reduce import sum as sum_over
from palladio.array.functions.shape import expand_dims, ravel, squeeze, transpose
from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ops.arrays import dot as ops
from palladio.types import dtypes

__all__ = ["dot", "einsum", "inner", "matmul", "outer", "tensordot", "vdot"]

Axes = tuple[Sequence[int], Sequence[int]]


def product(
    lhs: ArrayLike, rhs: ArrayLike, contracting: Axes, batch: Axes = ((), ()), preferred_element_type: Any = None
) -> Array:
    """`dot_general` of promoted inputs.

    Floats of different dtypes are multiplied as they are, the result has their common dtype. With a preferred dtype of
    floats they need not have any, such as bfloat16 and float8.
    """
    preferred = None if preferred_element_type is None else dtypes.canonical(preferred_element_type)
    of_floats = all(dtypes.is_float(array_type(x).dtype) and not is_weak(x) for x in (lhs, rhs))
    if of_floats and preferred is not None and dtypes.is_float(preferred):
        common, weak = preferred, False
    else:
        common, weak = result_type(lhs, rhs)
    wanted = common if preferred is None else preferred
    sides = [_multipliable(side, common) for side in (lhs, rhs)]
    found = call(
        ops.dot_general,
        *sides,
        contracting=(tuple(contracting[0]), tuple(contracting[1])),
        batch=(tuple(batch[0]), tuple(batch[1])),
        dtype=dtypes.INT32 if wanted == dtypes.BOOL else wanted,
    )
    return cast(found, wanted) if wanted == dtypes.BOOL else mark_weak(found, weak)


def _multipliable(side: ArrayLike, common: Any) -> Array:
    own = array_type(side).dtype
    if own == dtypes.BOOL:
        return cast(side, dtypes.INT32 if common == dtypes.BOOL else common)
    keeps = not is_weak(side) and dtypes.is_float(own) == dtypes.is_float(common)
    return side if keeps and getattr(side, "shape", None) is not None else cast(side, common)


def matmul(a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The matrix product of `a: dtype[..., m, k]` and `b: dtype[..., k, n]`; a vector is a row on the left, a column
    on the right.

    Args:
        precision: accepted, without effect: products and sums are at least float32, up to rounding.
        preferred_element_type: the dtype of the result, the common one by default.

    Raises:
        PalladioValueError: a scalar, or sizes that do not fit.
    """
    left, right = array_type(a), array_type(b)
    if left.ndim == 0 or right.ndim == 0:
        raise PalladioValueError("matmul takes no scalars", got=f"{left} and {right}", hint="use *")
    a = expand_dims(a, 0) if left.ndim == 1 else a
    b = expand_dims(b, 1) if right.ndim == 1 else b
    (*lead_a, _, k), (*lead_b, rows, _) = array_type(a).shape, array_type(b).shape
    if k != rows:
        raise PalladioValueError(
            "the inner sizes of a matrix product differ",
            expected="[..., m, k] and [..., k, n]",
            got=f"{left} and {right}",
        )
    found = _batched(a, b, tuple(lead_a), tuple(lead_b), preferred_element_type)
    dropped = [axis for axis, rank in ((-2, left.ndim), (-1, right.ndim)) if rank == 1]
    return squeeze(found, dropped) if dropped else found


def _batched(a: Array, b: Array, lead_a: tuple[int, ...], lead_b: tuple[int, ...], preferred: Any) -> Array:
    if not lead_b:
        rank = len(lead_a)
        return product(a, b, ((rank + 1,), (0,)), preferred_element_type=preferred)
    lead = broadcast_shapes(lead_a, lead_b)
    a = broadcast_to(a, (*lead, *array_type(a).shape[-2:]))
    b = broadcast_to(b, (*lead, *array_type(b).shape[-2:]))
    rank = len(lead)
    return product(a, b, ((rank + 1,), (rank,)), (range(rank), range(rank)), preferred)


def dot(a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """`np.dot`: the sum of products over the last axis of `a` and the last but one of `b` (its last, for a vector)."""
    left, right = array_type(a), array_type(b)
    if left.ndim == 0 or right.ndim == 0:
        return product(a, b, ((), ()), preferred_element_type=preferred_element_type)
    axis = max(right.ndim - 2, 0)
    if left.shape[-1] != right.shape[axis]:
        raise PalladioValueError("the summed sizes of a dot differ", got=f"{left} and {right}")
    return product(a, b, ((left.ndim - 1,), (axis,)), preferred_element_type=preferred_element_type)


def vdot(a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The sum of the products of all elements."""
    return dot(ravel(a), ravel(b), preferred_element_type=preferred_element_type)


def inner(a: ArrayLike, b: ArrayLike, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The sum of products over the last axes."""
    left, right = array_type(a), array_type(b)
    if left.ndim == 0 or right.ndim == 0:
        return product(a, b, ((), ()), preferred_element_type=preferred_element_type)
    return tensordot(a, b, ((left.ndim - 1,), (right.ndim - 1,)), preferred_element_type=preferred_element_type)


def outer(a: ArrayLike, b: ArrayLike) -> Array:
    """The products of each element of `a` with each of `b`."""
    return product(ravel(a), ravel(b), ((), ()))


def tensordot(
    a: ArrayLike, b: ArrayLike, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """The sum of products over pairs of axes: the last n of `a` with the first n of `b`, or those given."""
    left, right = array_type(a), array_type(b)
    if isinstance(axes, int):
        pairs = (range(left.ndim - axes, left.ndim), range(axes))
    else:
        pairs = tuple((part,) if isinstance(part, int) else tuple(part) for part in axes)
    first = [normalize_axis(axis, left.ndim) for axis in pairs[0]]
    second = [normalize_axis(axis, right.ndim) for axis in pairs[1]]
    return product(a, b, (first, second), preferred_element_type=preferred_element_type)


# einsum


def einsum(
    subscripts: str,
    /,
    *operands: ArrayLike,
    precision: Any = None,
    preferred_element_type: Any = None,
    optimize: Any = None,
) -> Array:
    """Sums of products in Einstein's notation: `einsum("bij,bjk->bik", x, y)`. Several operands are multiplied from
    left to right.

    Raises:
        PalladioValueError: subscripts that do not fit the operands, or a letter twice in one operand.
    """
    terms, output = _parsed(subscripts, operands)
    sizes = _sizes(terms, operands, subscripts)
    fitted = [_without_ones(operand, term, sizes) for operand, term in zip(operands, terms, strict=True)]
    operands, terms = [operand for operand, _ in fitted], [term for _, term in fitted]
    value, letters = operands[0], terms[0]
    value, letters = _summed(value, letters, [*terms[1:], output])
    for n in range(1, len(operands)):
        later = [*terms[n + 1 :], output]
        other, other_letters = _summed(operands[n], terms[n], [letters, *later])
        value, letters = _pair(value, letters, other, other_letters, later, preferred_element_type)
    value, letters = _summed(value, letters, [output])
    found = transpose(value, [letters.index(letter) for letter in output])
    return found if preferred_element_type is None else cast(found, dtypes.canonical(preferred_element_type))


def _parsed(subscripts: Any, operands: Sequence[Any]) -> tuple[list[str], str]:
    if not isinstance(subscripts, str):
        raise PalladioTypeError("the subscripts are a string", argument="subscripts", got=repr(subscripts))
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands) or not operands:
        raise PalladioValueError(
            "one term for each operand", argument="subscripts", expected=f"{len(operands)} terms", got=repr(subscripts)
        )
    if "..." in left:
        terms, hidden = _without_ellipsis(terms, operands)
        right = right.replace("...", hidden) if arrow else hidden
        letters = "".join(terms)
        right += "" if arrow else "".join(sorted(x for x in set(letters) if letters.count(x) == 1 and x not in hidden))
        arrow = "->"
    letters = "".join(terms)
    if not arrow:
        right = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    strange = [letter for letter in letters + right if not letter.isalpha()]
    if strange or len(set(right)) != len(right) or any(letter not in letters for letter in right):
        raise PalladioValueError("the subscripts do not parse", argument="subscripts", got=repr(subscripts))
    if any(len(set(term)) != len(term) for term in terms):
        raise PalladioValueError(
            "a letter stands twice in one operand: diagonals are not taken", argument="subscripts", got=repr(subscripts)
        )
    return terms, right


def _without_ellipsis(terms: Sequence[str], operands: Sequence[Any]) -> tuple[list[str], str]:
    """The terms with the ellipses replaced by unused letters, aligned at the right."""
    ranks = [
        array_type(operand).ndim - len(term.replace("...", "")) if "..." in term else 0
        for term, operand in zip(terms, operands, strict=True)
    ]
    free = [chr(code) for code in range(ord("A"), ord("Z") + 1) if not any(chr(code) in term for term in terms)]
    hidden = "".join(free[: max(ranks)])
    return [term.replace("...", hidden[len(hidden) - rank :]) for term, rank in zip(terms, ranks, strict=True)], hidden


def _sizes(terms: Sequence[str], operands: Sequence[Array], subscripts: str) -> dict[str, int]:
    """The size of each letter's axis."""
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        shape = array_type(operand).shape
        if len(term) != len(shape):
            raise PalladioValueError(
                f"the term {term!r} has another rank than its operand",
                argument="subscripts",
                expected=shape,
                got=repr(subscripts),
            )
        for letter, extent in zip(term, shape, strict=True):
            known = sizes.get(letter, 1)
            if known != extent and 1 not in (known, extent):
                raise PalladioValueError(
                    f"the letter {letter!r} stands for two sizes", argument="subscripts", expected=known, got=extent
                )
            sizes[letter] = extent if known == 1 else known
    return sizes


def _without_ones(operand: ArrayLike, term: str, sizes: dict[str, int]) -> tuple[Array, str]:
    """An operand without its axes of size 1 that broadcast: the product broadcasts them itself."""
    shape = array_type(operand).shape
    ones = [axis for axis, letter in enumerate(term) if shape[axis] != sizes[letter]]
    if not ones:
        return operand, term
    return squeeze(operand, ones), "".join(letter for axis, letter in enumerate(term) if axis not in ones)


def _summed(value: ArrayLike, letters: str, later: Sequence[str]) -> tuple[Array, str]:
    """Sum over the letters that nothing later mentions. The dtype stays."""
    gone = [n for n, letter in enumerate(letters) if not any(letter in term for term in later)]
    if not gone:
        return value, letters
    dtype = array_type(value).dtype
    found = sum_over(value, axis=tuple(gone), dtype=dtypes.INT32 if dtype == dtypes.BOOL else dtype)
    return cast(found, dtype), "".join(x for n, x in enumerate(letters) if n not in gone)


def _pair(a: Array, mine: str, b: Array, other: str, later: Sequence[str], preferred: Any) -> tuple[Array, str]:
    shared = [letter for letter in mine if letter in other]
    kept = [letter for letter in shared if any(letter in term for term in later)]
    summed = [letter for letter in shared if letter not in kept]
    contracting = [mine.index(x) for x in summed], [other.index(x) for x in summed]
    batch = [mine.index(x) for x in kept], [other.index(x) for x in kept]
    free = [x for x in mine if x not in shared] + [x for x in other if x not in shared]
    return product(a, b, contracting, batch, preferred), "".join([*kept, *free])
