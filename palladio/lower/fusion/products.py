"""Matrix products, as a compiler computes them: some rows of the result at a time, in accumulators.

Other products, over several axes or with a few vectors, are computed as a whole, in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from palladio.ir.core import Atom, Eqn, Program, Var
from palladio.ir.rewrite import map_subprograms, with_body, with_parts
from palladio.ops.arrays.arithmetic import add
from palladio.ops.arrays.casts import convert
from palladio.ops.arrays.dot import Axes, dot_accumulate, dot_general, factors
from palladio.ops.arrays.zeros import zero_outside
from palladio.types import dtypes
from palladio.types.dtypes import DType
from palladio.types.types import Shape

VECTORS = 4
"""The largest number of rows, or of columns, of a product that is computed as one of a matrix and some vectors."""


def sums_in(lhs: DType, rhs: DType, result: DType) -> DType:
    """The dtype in which products are summed."""
    if dtypes.is_float(lhs) or dtypes.is_float(rhs):
        return dtypes.FLOAT64 if dtypes.FLOAT64 in (lhs, rhs, result) else dtypes.FLOAT32
    if not dtypes.is_integer(result):
        return dtypes.INT64
    return result if result.itemsize >= 4 else dtypes.INT32


def is_matrix_product(shapes: Sequence[Shape], contracting: Axes, batch: Axes) -> bool:
    """True for a product of two matrices over at most one axis, with more than a few vectors on either side."""
    sides = list(zip(shapes, contracting, strict=True))
    if batch[0] or any(len(axes) > 1 or len(shape) != len(axes) + 1 for shape, axes in sides):
        return False
    return all(n in axes or extent > VECTORS for shape, axes in sides for n, extent in enumerate(shape))


def starts(program: Program) -> Iterator[tuple[Eqn, Eqn]]:
    """Each matrix product with an addition to it that can initialise its accumulators."""
    for product, user in _used_once(program):
        if user.op is add and user.inputs[0].type == user.inputs[1].type:
            yield product, user


def roundings(program: Program) -> Iterator[tuple[Eqn, Eqn]]:
    """Each matrix product of floats with the conversion that rounds it, which the product can do itself."""
    for product, user in _used_once(program):
        if user.op is convert and dtypes.is_float(product.dtype) and dtypes.is_float(user.dtype):
            sides = product.lhs.type.dtype, product.rhs.type.dtype
            if sums_in(*sides, user.dtype) == product.dtype:
                yield product, user


def _used_once(program: Program) -> Iterator[tuple[Eqn, Eqn]]:
    """Each matrix product with the only equation that uses it.

    The product has the dtype of its sums, and no equation in between changes memory: operands that are read from there
    would otherwise have to be copied first.
    """
    used = _number_of_uses(program)
    pending: dict[Atom, Eqn] = {}
    for eqn in program.eqns:
        product = next((pending[atom] for atom in eqn.inputs if atom in pending), None)
        if product is not None:
            yield product, eqn
        if eqn.written or eqn.synchronises:
            pending.clear()
        if eqn.op is dot_general and _sums(eqn) and used[eqn.outputs[0]] == 1:
            pending[eqn.outputs[0]] = eqn


def _number_of_uses(program: Program) -> Counter[Atom]:
    return Counter(atom for inputs in (*(eqn.inputs for eqn in program.eqns), program.outputs) for atom in inputs)


def _sums(eqn: Eqn) -> bool:
    """True if the result of a product is its sums, without rounding."""
    sides = eqn.lhs.type, eqn.rhs.type
    if not is_matrix_product([side.shape for side in sides], eqn.contracting, eqn.batch):
        return False
    return sums_in(sides[0].dtype, sides[1].dtype, eqn.dtype) == eqn.dtype


def continuations(program: Program) -> Iterator[tuple[Eqn, Eqn]]:
    """Each product that accumulates, with the one that adds to its result, where both are one sum of more products.

    Operands have the same types and no zero ranges: products of masked operands may skip different steps along the
    summed axis.
    """
    bounded = {var for eqn in program.eqns if eqn.op is zero_outside for var in eqn.outputs}
    used = _number_of_uses(program)
    pending: dict[Atom, Eqn] = {}
    for eqn in program.eqns:
        if eqn.op is dot_accumulate and bounded.isdisjoint(eqn.inputs) and is_summed_by_rows(eqn):
            before = pending.get(eqn.acc)
            if before is not None and _multiply_alike(before, eqn):
                yield before, eqn
            if used[eqn.outputs[0]] == 1:
                pending[eqn.outputs[0]] = eqn
        elif eqn.written or eqn.synchronises:
            pending.clear()


def is_summed_by_rows(accumulation: Eqn) -> bool:
    """True for an accumulating product of matrices whose sums have the dtype of the accumulator."""
    lhs, rhs, sums = accumulation.lhs.type, accumulation.rhs.type, accumulation.acc.type.dtype
    is_matrix = is_matrix_product([lhs.shape, rhs.shape], accumulation.contracting, accumulation.batch)
    return is_matrix and sums_in(lhs.dtype, rhs.dtype, sums) == sums


def _multiply_alike(before: Eqn, after: Eqn) -> bool:
    same = (before.contracting, before.batch) == (after.contracting, after.batch)
    return same and [atom.type for atom in factors(before)[0]] == [atom.type for atom in factors(after)[0]]


def addend(addition: Eqn, product: Eqn) -> Atom:
    """The other operand of the addition to a product."""
    x, y = addition.inputs
    return y if isinstance(x, Var) and x in product.outputs else x


def accumulate_in(program: Program) -> Program:
    """The program with products that accumulate in place of products with additions."""
    sums = {addition: product for product, addition in starts(program)}
    products = {*sums.values()}
    eqns = (_accumulated(eqn, sums.get(eqn)) for eqn in program.eqns if eqn not in products)
    return with_body(program, eqns, program.outputs)


def round_in(program: Program) -> Program:
    """The program with products of the dtype that they are rounded to, in place of products with conversions."""
    found = {conversion: product for product, conversion in roundings(program)}
    products = {*found.values()}
    eqns = (_rounded(eqn, found.get(eqn)) for eqn in program.eqns if eqn not in products)
    return with_body(program, eqns, program.outputs)


def join_in(program: Program) -> Program:
    """The program with one equation for each chain of products that add to one another."""
    before = {after: first for first, after in continuations(program)}
    inner = {*before.values()}
    joined: dict[Eqn, Eqn] = {}
    eqns = []
    for eqn in program.eqns:
        new = with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, join_in))
        if eqn in before:
            first = joined[before[eqn]]
            new = Eqn(dot_accumulate, (*first.inputs, *eqn.inputs[1:]), eqn.outputs, eqn.params, (), eqn.location)
        if eqn in inner:
            joined[eqn] = new
        else:
            eqns.append(new)
    return with_body(program, eqns, program.outputs)


def _rounded(eqn: Eqn, product: Eqn | None) -> Eqn:
    if product is None:
        return with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, round_in))
    params = {**product.params, "dtype": eqn.dtype}
    return Eqn(dot_general, product.inputs, eqn.outputs, params, (), product.location)


def _accumulated(eqn: Eqn, product: Eqn | None) -> Eqn:
    if product is None:
        return with_parts(eqn, eqn.inputs, map_subprograms(eqn.params, accumulate_in))
    inputs = (addend(eqn, product), product.lhs, product.rhs)
    params = {"contracting": product.contracting, "batch": product.batch}
    return Eqn(dot_accumulate, inputs, eqn.outputs, params, (), product.location)
