"""Index arithmetic of threads says what the definition says, to the bit, for the values where that is not plain."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from palladio.ir.bind import form
from palladio.ir.core import Literal, Var
from palladio.machine.run.scalars import quick
from palladio.ops import OPS
from palladio.types.types import ArrayType

INT32 = np.iinfo(np.int32)
INTEGERS = [np.int32(x) for x in (INT32.min, INT32.min + 1, -7, -1, 0, 1, 2, 7, INT32.max)]
BOOLS = [np.bool_(False), np.bool_(True)]
UNARY, BINARY = ("sign",), ("add", "sub", "mul", "div", "rem", "min", "max", "lt", "le", "gt", "ge")
LOGIC = ("eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor")

CASES: list[tuple[str, list[list[Any]], dict[str, Any]]] = [
    *((name, [INTEGERS], {}) for name in (*UNARY, "bitwise_not")),
    ("bitwise_not", [BOOLS], {}),
    *((name, [INTEGERS, INTEGERS], {}) for name in (*BINARY, *LOGIC)),
    *((name, [BOOLS, BOOLS], {}) for name in LOGIC),
    ("select", [BOOLS, INTEGERS, INTEGERS], {}),
    ("select", [BOOLS, BOOLS, BOOLS], {}),
    ("convert", [BOOLS], {"dtype": np.dtype(np.int32)}),
]


def equation(name: str, inputs: Any, params: dict[str, Any]) -> Any:
    return form(OPS[name], [Literal(values[0], values[0].dtype) for values in inputs], params, None)


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize(("name", "inputs", "params"), CASES)
def test_it_says_what_the_definition_says(name: str, inputs: Any, params: dict[str, Any], boxed: bool) -> None:
    run = quick(equation(name, inputs, params))
    assert run is not None
    for values in product(*inputs):
        with np.errstate(all="ignore"):
            (wanted,) = OPS[name].eval(*values, **params)
            (found,) = run(*(np.array(value) if boxed else value for value in values))
        assert (found, found.dtype, np.shape(found)) == (wanted, np.asarray(wanted).dtype, ()), values


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("add", [((), np.float32)] * 2),
        ("add", [((), np.int64)] * 2),
        ("add", [((3,), np.int32)] * 2),
        ("add", [((), np.int32), ((3,), np.int32)]),
        ("lt", [((), np.bool_)] * 2),
        ("convert", [((), np.int32)]),
        ("exp", [((), np.float32)]),
    ],
)
def test_it_leaves_all_else_to_the_definition(name: str, types: Any) -> None:
    params = {"dtype": np.dtype(np.int32)} if name == "convert" else {}
    inputs = [Var(ArrayType(shape, np.dtype(dtype))) for shape, dtype in types]
    assert quick(form(OPS[name], inputs, params, None)) is None
