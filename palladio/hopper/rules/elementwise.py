"""Elementwise operations: one C expression each, for numbers and for arrays in registers.

Floats narrower than float32 are computed in float32 and rounded after each operation, as their definitions require.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from palladio.hopper.emit.scalars import (
    Scalar,
    from_memory,
    literal,
    memory_type,
    narrow,
    register_type,
    rounded,
    to_memory,
)
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import Array, Computed, Entry, Registers, Splat
from palladio.hopper.layouts.integers import closes_last
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.rules.shape import in_other_pieces
from palladio.ir.core import Eqn
from palladio.types import dtypes
from palladio.types.dtypes import DType

INT_BYTES = 4
"""Narrower integers are computed as `int`, without overflow."""

Expression = Callable[..., str]
"""`(dtype of the inputs, *C expressions, **params) -> C expression`."""


def _infix(sign: str) -> Expression:
    return lambda dtype, x, y: f"{x} {sign} {y}"


def _wrapping(sign: str) -> Expression:
    """Sums and products of signed integers that may overflow, which is defined in C++ for unsigned ones only."""

    def express(dtype: DType, x: str, y: str) -> str:
        unsigned = _unsigned(dtype)
        return f"({register_type(dtype)})(({unsigned}){x} {sign} ({unsigned}){y})"

    return express


def _negative(dtype: DType, x: str) -> str:
    return f"({register_type(dtype)})(0 - ({_unsigned(dtype)}){x})"


def _whole_power(dtype: DType, x: str, y: int) -> str:
    if y < 1:
        return _power(dtype, x, y)
    product = " * ".join([f"({_unsigned(dtype)}){x}"] * y)
    return f"({register_type(dtype)})({product})"


WRAPPING: dict[str, Expression] = {
    **{name: _wrapping(sign) for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))},
    "neg": _negative,
    "abs": lambda dtype, x: f"({x} < 0 ? {_negative(dtype, x)} : {x})",
    "integer_pow": _whole_power,
}
"""Operations on signed 32-bit and 64-bit integers whose results may overflow."""


def _wide(dtype: DType) -> bool:
    return dtype == dtypes.FLOAT64


def _function(name: str) -> Expression:
    return lambda dtype, *args: f"{name}{'' if _wide(dtype) else 'f'}({', '.join(args)})"


def _one(dtype: DType) -> str:
    return "1.0" if _wide(dtype) else "1.0f"


def _divide(dtype: DType, x: str, y: str) -> str:
    """A quotient; of integers by zero, all bits are set."""
    if dtypes.is_float(dtype):
        return f"{x} / {y}"
    least = (
        f"{y} == -1 ? {_negative(dtype, x)} : " if dtypes.is_signed(dtype) else ""
    )  # the least by -1 is out of range
    return f"({y} == 0 ? ({register_type(dtype)})-1 : {least}{x} / ({y} == 0 ? 1 : {y}))"


def _remainder(dtype: DType, x: str, y: str) -> str:
    if dtypes.is_float(dtype):
        return _function("fmod")(dtype, x, y)
    if dtypes.is_signed(dtype):
        return f"({y} == 0 ? {x} : {y} == -1 ? 0 : {x} % ({y} == 0 ? 1 : {y}))"
    return f"({y} == 0 ? {x} : {x} % ({y} == 0 ? 1 : {y}))"


def _extreme(sign: str, function: str) -> Expression:
    def express(dtype: DType, x: str, y: str) -> str:
        return f"pal::{function}({x}, {y})" if dtypes.is_float(dtype) else f"({x} {sign} {y} ? {x} : {y})"

    return express


maximum, minimum = _extreme(">", "maximum"), _extreme("<", "minimum")


def _sign(dtype: DType, x: str) -> str:
    if dtypes.is_float(dtype):
        return f"({x} > 0 ? {_one(dtype)} : {x} < 0 ? -{_one(dtype)} : {x})"
    return f"({x} > 0)" if dtypes.is_unsigned(dtype) else f"({x} > 0) - ({x} < 0)"


def _product(dtype: DType, x: str, y: str) -> str:
    """A product; C++ promotes integers of 16 bits to `int`, in which products of unsigned ones may overflow."""
    return f"(u32){x} * {y}" if dtypes.is_unsigned(dtype) and dtype.itemsize == 2 else f"{x} * {y}"


def _absolute(dtype: DType, x: str) -> str:
    if dtypes.is_float(dtype):
        return _function("fabs")(dtype, x)
    return x if dtypes.is_unsigned(dtype) else f"({x} < 0 ? -{x} : {x})"


def _power(dtype: DType, x: str, y: int) -> str:
    """A power with its factors written out; squaring is left to the C++ compiler."""
    if y == 0:
        return _one(dtype) if dtypes.is_float(dtype) else "1"
    if abs(y) > 8 and dtypes.is_float(dtype):
        return _function("pow")(dtype, x, f"{float(y)}{'' if _wide(dtype) else 'f'}")
    small = dtypes.is_integer(dtype) and dtype.itemsize < INT_BYTES  # their products may overflow `int`
    product = " * ".join([f"(u32){x}" if small else x] * abs(y))
    return f"{_one(dtype)} / ({product})" if y < 0 else product


def _general_power(dtype: DType, x: str, y: str) -> str:
    if not dtypes.is_float(dtype):
        kind = register_type(dtype)
        return f"pal::power<{kind}>({x}, {y})"
    return _function("pow")(dtype, x, y)


def _logistic(dtype: DType, x: str) -> str:
    below = f"{_one(dtype)} + {_function('exp')(dtype, f'-({x})')}"
    return f"1.0 / ({below})" if _wide(dtype) else f"pal::inverse({below})"


def _round(dtype: DType, x: str, half: str) -> str:
    return _function("round" if half == "away" else "rint")(dtype, x)


def _is_finite(dtype: DType, x: str) -> str:
    return f"{_absolute(dtype, x)} < PAL_INFINITY" if dtypes.is_float(dtype) else "true"


def _bits(dtype: DType) -> int:
    return dtype.itemsize * 8


def _unsigned(dtype: DType) -> str:
    return {1: "u8", 2: "u16", 4: "u32", 8: "u64"}[dtype.itemsize]


def _shift_left(dtype: DType, x: str, y: str) -> str:
    kind = register_type(dtype)
    return f"((u64){y} < {_bits(dtype)} ? ({kind})(({_unsigned(dtype)}){x} << {y}) : ({kind})0)"


def _shift_right(dtype: DType, x: str, y: str) -> str:
    kind = register_type(dtype)
    return f"((u64){y} < {_bits(dtype)} ? ({kind})(({_unsigned(dtype)}){x} >> {y}) : ({kind})0)"


def _shift_arithmetic(dtype: DType, x: str, y: str) -> str:
    kind = register_type(dtype)
    signed = {1: "signed char", 2: "short", 4: "int", 8: "i64"}[dtype.itemsize]
    return f"({kind})(({signed}){x} >> ((u64){y} < {_bits(dtype)} ? (int){y} : {_bits(dtype) - 1}))"


def _counted(function: str) -> Expression:
    """A count of bits; narrow integers are zero-extended."""

    def express(dtype: DType, x: str) -> str:
        text = f"pal::{function}(({'u64' if dtype.itemsize == 8 else 'u32'})({_unsigned(dtype)}){x})"
        above = 32 - 8 * dtype.itemsize if function == "leading_zeros" else 0
        return f"({register_type(dtype)})({text}{f' - {above}' if above > 0 else ''})"

    return express


def _next_after(dtype: DType, x: str, y: str) -> str:
    """The bits plus or minus one: as integers, they increase away from zero."""
    kind = narrow(dtype)
    if kind is None:
        return _function("nextafter")(dtype, x, y)
    word, sign = _unsigned(dtype), hex(1 << 8 * dtype.itemsize - 1)
    up, bits = f"{x} < {y}", f"pal::bits_{kind}({x})"
    moved = f"{bits} + (({up}) != ({bits} >= {sign}) ? 1 : -1)"
    found = f"pal::float_{kind}(({word})({x} == 0 ? ({up} ? 1 : {sign} + 1) : {moved}))"
    return f"({x} != {x} || {y} != {y} ? {x} + {y} : {x} == {y} ? {y} : {found})"


def _order(sign: str, always: str = "", never: str = "") -> Expression:
    """A comparison; one of an unsigned integer with 0 may be known, at which the compiler would warn.

    Args:
        always, never: the operand, x or y, for which 0 makes it true, or false.
    """

    def express(dtype: DType, x: str, y: str) -> str:
        if dtypes.is_unsigned(dtype):
            zeros = [name for name, text in (("x", x), ("y", y)) if text.rstrip("ul") == "0"]
            if always in zeros or never in zeros:
                return "true" if always in zeros else "false"
        return f"{x} {sign} {y}"

    return express


def _not(dtype: DType, x: str) -> str:
    return f"!({x})" if dtypes.is_bool(dtype) else f"~({x})"


EXPRESSIONS: dict[str, Expression] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _product,
    "div": _divide,
    "rem": _remainder,
    "max": maximum,
    "min": minimum,
    "clamp": lambda dtype, low, x, high: minimum(dtype, maximum(dtype, low, x), high),
    "neg": lambda dtype, x: f"-({x})",
    "abs": _absolute,
    "sign": _sign,
    "pow": _general_power,
    "integer_pow": _power,
    "rsqrt": lambda dtype, x: f"{_one(dtype)} / {_function('sqrt')(dtype, x)}",
    "logistic": _logistic,
    "round": _round,
    "is_finite": _is_finite,
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _order("<", never="y"),
    "le": _order("<=", always="x"),
    "gt": _order(">", never="x"),
    "ge": _order(">=", always="y"),
    "bitwise_and": _infix("&"),
    "bitwise_or": _infix("|"),
    "bitwise_xor": _infix("^"),
    "bitwise_not": _not,
    "population_count": _counted("ones"),
    "clz": _counted("leading_zeros"),
    "nextafter": _next_after,
    "erf_inv": _function("erfinv"),
    "shift_left": _shift_left,
    "shift_right_logical": _shift_right,
    "shift_right_arithmetic": _shift_arithmetic,
    **{
        name: _function(name)
        for name in (
            *("exp", "exp2", "expm1", "log", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "atan2"),
        )
    },
}
"""The C expressions of elementwise operations, by name."""

LOG2_E = "1.44269504f"

APPROXIMATE: dict[str, Expression] = {
    "exp": lambda dtype, x: f"pal::approximate_exp2(({x}) * {LOG2_E})",
    "exp2": lambda dtype, x: f"pal::approximate_exp2({x})",
}
"""Expressions for floats of at most 32 bits in kernels whose functions may be approximated."""

FACTORS: dict[str, Callable[[int, int], int]] = {
    "add": math.gcd,
    "sub": math.gcd,
    "min": math.gcd,
    "max": math.gcd,
    "mul": lambda a, b: min(a * b, 1 << 30),
}
"""A known divisor of an operation's result, from those of its two operands."""


def wraps(dtype: DType) -> bool:
    """True if overflow of a dtype's arithmetic is undefined in C++."""
    return dtypes.is_integer(dtype) and dtypes.is_signed(dtype) and dtype.itemsize >= INT_BYTES


def _elementwise(name: str) -> Rule:
    exact = EXPRESSIONS[name]

    def rule(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
        dtype = eqn.inputs[0].type.dtype  # type: ignore[union-attr]
        express = APPROXIMATE.get(name, exact) if scope.kernel.approximate and not _wide(dtype) else exact
        if name in WRAPPING and wraps(dtype) and eqn.outputs[0] not in scope.in_range:
            found = mapped(scope, eqn, lambda *texts: WRAPPING[name](dtype, *texts, **eqn.params), FACTORS.get(name))
            return [found]
        return [mapped(scope, eqn, lambda *texts: express(dtype, *texts, **eqn.params), FACTORS.get(name))]

    return rule


def _division(sign: str, general: Expression) -> Rule:
    """Quotients or remainders; integers are divided by a positive constant without special cases."""

    def rule(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
        dtype, divisor = eqn.inputs[0].type.dtype, scope.entry(eqn.inputs[1])  # type: ignore[union-attr]
        known = dtypes.is_integer(dtype) and isinstance(divisor, (Scalar, Splat)) and (divisor.constant or 0) > 0
        express = _infix(sign) if known else general
        return [mapped(scope, eqn, lambda x, y: express(dtype, x, y))]

    return rule


def mapped(
    scope: Scope, eqn: Eqn, express: Callable[..., str], factor: Callable[[int, int], int] | None = None
) -> Entry:
    """The result of an elementwise operation."""
    (out,) = eqn.outputs
    dtype = out.type.dtype
    if not out.type.shape:
        inputs = [scope.scalar(atom) for atom in eqn.inputs]
        divides = factor(*(each.factor for each in inputs)) if factor and len(inputs) == 2 else 1
        text = rounded(express(*(_bracketed(each.text) for each in inputs)), dtype)
        return scope.number(out, text, divides)
    found = [scope.entry(atom) for atom in eqn.inputs]
    if all(isinstance(each, (Splat, Scalar)) for each in found):
        name = scope.w.fresh(out.hint, "x")
        text = rounded(express(*(_bracketed(each.text) for each in found)), dtype)  # type: ignore[union-attr]
        scope.w.compute(f"const {register_type(dtype)} {name} = {text};")
        return Splat(name, out.type.shape, dtype)
    layout = scope.layout(out)
    arrays = [scope.array(atom, layout) for atom in eqn.inputs]
    if not any(isinstance(each, Registers) for each in arrays):
        return _computed(scope, arrays, out.type.shape, dtype, express)
    target = scope.declare(out.hint, layout, dtype, exact=narrow(dtype) is None)
    return scope.fill(target, lambda r: express(*(_bracketed(scope.element(each, r, layout)) for each in arrays)))


def _computed(
    scope: Scope, arrays: Sequence[Array], shape: tuple[int, ...], dtype: DType, express: Callable[..., str]
) -> Computed:
    """A result that is a function of positions alone, which stays unmaterialised."""

    def at(layout: Layout, register: str, thread: str) -> str:
        texts = [
            each.at(layout, register, thread) if isinstance(each, Computed) else each.text  # type: ignore[union-attr]
            for each in arrays
        ]
        text = rounded(express(*map(_bracketed, texts)), dtype)
        small = dtypes.is_integer(dtype) and dtype.itemsize < INT_BYTES
        return f"(({register_type(dtype)})({text}))" if small else f"({text})"

    return Computed(at, shape, dtype)


def _bracketed(text: str) -> str:
    plain = text.replace("_", "").replace(".", "").replace("[", "").replace("]", "").isalnum()
    return text if plain or (text.startswith("(") and closes_last(text)) else f"({text})"


# Selects and conversions.


def _select(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    return [mapped(scope, eqn, lambda test, x, y: f"({test} ? {x} : {y})")]


def converted(text: str, source: DType, target: DType) -> str:
    """A number converted to another dtype: floats to integers truncate and saturate, NaN to 0; integers wrap around."""
    if source == target:
        return text
    if dtypes.is_bool(target):
        return f"{text} != 0"
    if source == dtypes.FLOAT64 and target == dtypes.FLOAT16:
        return f"pal::odd_float({text})"
    if dtypes.is_float(target):
        return text if register_type(source) == register_type(target) else f"({register_type(target)}){text}"
    if not dtypes.is_float(source):
        return f"({register_type(target)}){text}"
    bits, kind = target.itemsize * 8, register_type(target)
    if dtypes.is_signed(target):
        low, high = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1)
        least, most = (literal(value, target) for value in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    else:
        low, high = 0.0, 2.0**bits
        least, most = "0", literal(2**bits - 1, target)
    suffix = "" if _wide(source) else "f"
    return (
        f"({text} != {text} ? ({kind})0 : {text} <= {low}{suffix} ? ({kind}){least} : "
        f"{text} >= {high}{suffix} ? ({kind}){most} : ({kind}){text})"
    )


def _convert(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    (x,), (out,) = eqn.inputs, eqn.outputs
    source, target = x.type.dtype, out.type.dtype
    if dtypes.is_bool(source) and not out.type.shape and not dtypes.is_float(target):
        known = scope.scalar(x)
        return [Scalar(known.text, target, 1, known.truth)]
    if source == target:
        return [scope.entry(x)]
    factor = (lambda a, b: a) if dtypes.is_integer(source) and dtypes.is_integer(target) else None
    found = mapped(scope, eqn, lambda text: converted(text, source, target))
    if isinstance(found, Scalar) and factor:
        return [Scalar(found.text, target, scope.scalar(x).factor)]
    return [found]


def _bitcast(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    if eqn.array.type.shape != eqn.outputs[0].type.shape:  # type: ignore[union-attr]
        return [in_other_pieces(scope, eqn)]
    from_dtype, to_dtype = eqn.array.type.dtype, eqn.outputs[0].type.dtype  # type: ignore[union-attr]

    def express(text: str) -> str:
        if memory_type(from_dtype) == memory_type(to_dtype) and not narrow(from_dtype) and not narrow(to_dtype):
            return text
        bits = to_memory(text, from_dtype)
        if dtypes.is_float(from_dtype) and not narrow(from_dtype):
            bits = f"pal::bits_of({text})"
        if dtypes.is_float(to_dtype) and not narrow(to_dtype):
            return f"pal::{'double' if _wide(to_dtype) else 'float'}_of({bits})"
        return from_memory(f"({memory_type(to_dtype)})({bits})", to_dtype)

    return [mapped(scope, eqn, express)]


def _multiple(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    """The kernel's promise that a number is a multiple of others."""
    known = scope.entry(eqn.value)
    if not isinstance(known, Scalar):
        return [known]
    factor = math.lcm(known.factor, *eqn.values) if known.factor < 1 << 30 else known.factor
    return [replace(known, factor=factor)]


RULES: dict[str, Rule] = {
    **{name: _elementwise(name) for name in EXPRESSIONS},
    "div": _division("/", _divide),
    "rem": _division("%", _remainder),
    "select": _select,
    "convert": _convert,
    "bitcast_convert": _bitcast,
    "multiple_of": _multiple,
}
