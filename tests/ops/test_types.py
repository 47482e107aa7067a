"""The type rule of every operation says what its definition produces, for every dtype that it accepts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from palladio.base.errors import PalladioError
from palladio.ir.core import Op
from palladio.ops.arrays import arithmetic, bits, casts, compare, math, reduce, scan, sort
from palladio.types import dtypes
from palladio.types.types import ArrayType

FAMILIES = (arithmetic, math, compare, bits, casts, reduce, scan, sort)
OPS = [value for family in FAMILIES for value in vars(family).values() if isinstance(value, Op)]
AXES: list[dict[str, Any]] = [{"axes": axes} for axes in ((), (0,), (1,), (0, 1))]
POSITIONS: list[dict[str, Any]] = [
    {"axis": axis, "dtype": dtype} for axis in (0, 1) for dtype in (dtypes.INT32, dtypes.INT64)
]
SCANS: list[dict[str, Any]] = [{"axis": axis, "reverse": reverse} for axis in (0, 1) for reverse in (False, True)]
PARAMS: dict[str, list[dict[str, Any]]] = {
    "integer_pow": [{"y": y} for y in (-2, 0, 1, 3)],
    "round": [{"half": half} for half in ("even", "away")],
    "convert": [{"dtype": dtype} for dtype in dtypes.ALL],
    "bitcast_convert": [{"dtype": dtype} for dtype in dtypes.ALL],
    **{op.name: AXES for op in OPS if op.name.startswith("reduce_")},
    **{op.name: POSITIONS for op in (reduce.argmax, reduce.argmin)},
    **{op.name: SCANS for op in OPS if op.name.startswith("cum")},
    "sort": [{"axis": axis, "num_keys": keys, "stable": True} for axis in (0, 1) for keys in (1, 2)],
}
SHAPES = [((2, 4), (2, 4), (2, 4)), ((2, 4), (), (2, 4)), ((), (2, 4), ()), ((), (), ()), ((0, 4), (0, 4), (0, 4))]


def uses(op: Op, dtype: Any) -> Iterator[tuple[list[ArrayType], dict[str, Any], Any]]:
    """Every use that the type rule accepts: input types, params, and what the rule says."""
    first = dtypes.BOOL if op is compare.select else dtype
    for arity, shapes, params in itertools.product((1, 2, 3), SHAPES, PARAMS.get(op.name, [{}])):
        inputs = [ArrayType(shape, first if n == 0 else dtype) for n, shape in enumerate(shapes[:arity])]
        try:
            yield inputs, params, tuple(op.type(*inputs, **params))
        except (PalladioError, TypeError):
            continue


def sample(type: ArrayType) -> Any:
    values = np.random.default_rng(0).integers(0, 3, type.shape)
    return np.asarray(values).astype(type.dtype)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_the_definition_gives_what_the_type_rule_says(op: Op) -> None:
    count = 0
    for dtype in dtypes.ALL:
        for inputs, params, expected in uses(op, dtype):
            with np.errstate(all="ignore"):
                outputs = op.eval(*(sample(type) for type in inputs), **params)
            found = tuple(ArrayType(np.shape(output), output.dtype) for output in outputs)
            assert found == expected, f"{op} of {', '.join(map(str, inputs))} {params}"
            count += 1
    assert count > 0


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_the_definition_leaves_its_inputs_alone(op: Op) -> None:
    for inputs, params, _ in uses(op, dtypes.INT32 if op in vars(bits).values() else dtypes.FLOAT32):
        values = [sample(type) for type in inputs]
        for value in values:
            value.setflags(write=False)
        with np.errstate(all="ignore"):
            op.eval(*values, **params)
