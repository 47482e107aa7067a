"""Functions of float32 on whole vectors, without branches and without calls.

The C library's would be called lane by lane, which makes a kernel ten times slower. Polynomials are fitted for
the least largest error relative to the function; each function names its error in units in the last place (ulp).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from palladio.cpu import host, registers
from palladio.cpu.emit import Emitter, V

# exp(r) for |r| <= ln(2)/2, relative to it; the first three coefficients are those of the power series.
_EXP = (1.3863749336e-03, 8.3674974740e-03, 4.1667237878e-02, 1.6666534543e-01, 0.5, 1.0, 1.0)
# 2**r for |r| <= 1/2, relative to it.
_EXP2 = (1.5328363224e-4, 1.3390999520e-3, 9.6185021102e-3, 5.5503595620e-2, 2.4022647738e-1, 6.9314718246e-1, 1.0)

# erf(x)/x in x*x, for |x| <= 0.92.
_ERF_SMALL = (
    8.3823880043e-05,
    -8.1455969039e-04,
    5.2012860233e-03,
    -2.6859500081e-02,
    1.1283697325e-01,
    -3.7612633854e-01,
    1.1283791666e00,
)
# log(erfc(x)) for 0.92 <= x <= 4, weighted by erfc(x): what matters is 1 - erfc(x).
_ERF_LARGE = (
    1.9593826201e-04,
    -3.0432267731e-03,
    2.2226955254e-02,
    -1.0393166457e-01,
    -6.3718217517e-01,
    -1.1276756665e00,
    -1.9566651456e-04,
)
# (tanh(x)/x - 1)/x**2 in x*x, for |x| <= 0.625.
_TANH = (-5.7049783975e-03, 2.0639078765e-02, -5.3739712165e-02, 1.3331442158e-01, -3.3333281940e-01)
# (log(1+f) - f + f*f/2)/f**3 for sqrt(1/2) <= 1+f <= sqrt(2).
_LOG = (
    6.7466012435e-02,
    -1.1675641269e-01,
    1.1888174619e-01,
    -1.2405591425e-01,
    1.4219550906e-01,
    -1.6667995667e-01,
    2.0002118732e-01,
    -2.5000009604e-01,
    3.3333312603e-01,
)


def _number(e: Emitter, x: V, value: float) -> V:
    return e.constant(value, x.type)


def _fma(e: Emitter, a: V, b: V, c: V) -> V:
    return registers.multiply_add(e, a, b, c)


def _series(e: Emitter, x: V, coefficients: Sequence[float]) -> V:
    """A polynomial, the highest power first."""
    total = _number(e, x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = _fma(e, total, x, _number(e, x, coefficient))
    return total


def _with_sign(e: Emitter, size: V, x: V) -> V:
    return e.intrinsic("copysign", x.type, size, x)


def _bounded(e: Emitter, x: V, low: float, high: float) -> V:
    """The number nearest to x of those between two; a NaN stays."""
    for op, bound in (("fcmp olt", _number(e, x, high)), ("fcmp ogt", _number(e, x, low))):
        x = e.select(
            e.compare(op, bound, x), bound, x
        )  # one instruction, as it takes the second of two that are unordered
    return x


def _has_scale(x: V) -> bool:
    """Whether the host multiplies by powers of two in one instruction."""
    return x.type == "<16 x float>" and host.current().scales


def _nan_stays(e: Emitter, x: V, result: V) -> V:
    return e.select(e.compare("fcmp uno", x, x), x, result)


def _power_of_two(e: Emitter, exponent: V) -> V:
    """2**n in float32, for n from -126 to 127."""
    biased = e.binary("add", exponent, e.constant(127, exponent.type))
    return e.convert("bitcast", e.binary("shl", biased, e.constant(23, biased.type)), "float")


def _scaled(e: Emitter, whole: V, left: V, coefficients: Sequence[float]) -> V:
    """2**whole times a power series of what is left."""
    if _has_scale(left):
        # Of a power that is no number, or beyond all exponents, anything may be left. The scale alone decides then, if
        # the series is a positive number: one bit less makes |left| < 2.
        bits = e.convert("bitcast", left, "i32")
        left = e.convert("bitcast", e.binary("and", bits, e.constant(~(1 << 30), bits.type)), "float")
        now = V("4", "i32")  # the rounding that is set
        series = _series(e, left, coefficients)
        arguments = series, whole, series, V("-1", "i16"), now
        return e.intrinsic("x86.avx512.mask.scalef.ps", series.type, *arguments, suffix="512")
    # In two factors, since 2**n itself can be below what an exponent holds.
    series = _series(e, left, coefficients)
    exponent = e.convert("fptosi", whole, "i32")
    half = e.binary("ashr", exponent, e.constant(1, exponent.type))
    for power in (half, e.binary("sub", exponent, half)):
        series = e.binary("fmul", series, _power_of_two(e, power))
    return series


def exp(e: Emitter, x: V) -> V:
    """e to the power x: 2**n times a polynomial of what is left. Within 2 ulp."""
    bounded = x if _has_scale(x) else _bounded(e, x, -104.0, 89.0)
    whole = e.intrinsic("rint", x.type, e.binary("fmul", bounded, _number(e, x, math.log2(math.e))))
    # ln(2) in two parts, the first with few bits, so that the difference is exact.
    left = _fma(e, whole, _number(e, x, -0.693359375), bounded)
    left = _fma(e, whole, _number(e, x, 2.12194440e-4), left)
    result = _scaled(e, whole, left, _EXP)
    return result if _has_scale(x) else _nan_stays(e, x, result)


def exp2(e: Emitter, x: V) -> V:
    """2 to the power x. Within 2 ulp."""
    bounded = x if _has_scale(x) else _bounded(e, x, -151.0, 129.0)
    whole = e.intrinsic("rint", x.type, bounded)
    result = _scaled(e, whole, e.binary("fsub", bounded, whole), _EXP2)
    return result if _has_scale(x) else _nan_stays(e, x, result)


def log(e: Emitter, x: V) -> V:
    """The natural logarithm: of the power of two, and a polynomial of what is left around 1. Within 2 ulp."""
    tiny = e.compare("fcmp olt", x, _number(e, x, 2.0**-126))
    raised = e.select(tiny, e.binary("fmul", x, _number(e, x, 2.0**23)), x)
    bits = e.convert("bitcast", raised, "i32")

    def integer(value: int) -> V:
        return e.constant(value, bits.type)

    # The exponent for which the mantissa is between sqrt(1/2) and sqrt(2).
    offset = e.binary("sub", bits, integer(0x3F3504F3))
    exponent = e.binary("ashr", offset, integer(23))
    mantissa = e.binary("sub", bits, e.binary("shl", exponent, integer(23)))
    f = e.binary("fsub", e.convert("bitcast", mantissa, "float"), _number(e, x, 1.0))
    power = e.convert("sitofp", exponent, "float")
    power = e.binary("fsub", power, e.select(tiny, _number(e, x, 23.0), _number(e, x, 0.0)))
    square = e.binary("fmul", f, f)
    tail = _fma(e, _series(e, f, _LOG), e.binary("fmul", square, f), e.binary("fmul", square, _number(e, x, -0.5)))
    tail = _fma(e, power, _number(e, x, -2.12194440e-4), tail)
    result = _fma(e, power, _number(e, x, 0.693359375), e.binary("fadd", f, tail))
    infinite = e.compare("fcmp oeq", x, _number(e, x, math.inf))
    result = e.select(infinite, x, result)
    zero = _number(e, x, 0.0)
    result = e.select(e.compare("fcmp ult", x, zero), _number(e, x, math.nan), result)
    return e.select(e.compare("fcmp oeq", x, zero), _number(e, x, -math.inf), result)


def log1p(e: Emitter, x: V) -> V:
    """The logarithm of 1 + x: what rounding 1 + x has lost, log(1+x)/x has hardly noticed. Within 4 ulp."""
    one = _number(e, x, 1.0)
    more = e.binary("fadd", one, x)
    change = e.binary("fsub", more, one)
    result = e.binary("fmul", log(e, more), e.binary("fdiv", x, change))
    same = e.binary("or", e.compare("fcmp oeq", more, one), e.compare("fcmp oeq", more, _number(e, x, math.inf)))
    return e.select(same, x, result)


def expm1(e: Emitter, x: V) -> V:
    """The exponential of x, minus 1: of a rounded one, its logarithm tells what x it belongs to. Within 4 ulp."""
    one = _number(e, x, 1.0)
    power = exp(e, x)
    change = e.binary("fsub", power, one)
    result = e.binary("fmul", change, e.binary("fdiv", x, log(e, power)))
    # Far from 1 the difference is exact enough, and the logarithm of 0 or infinity would be of no use.
    far = e.compare("fcmp ogt", e.intrinsic("fabs", x.type, x), _number(e, x, 2.0))
    return e.select(e.compare("fcmp oeq", power, one), x, e.select(far, change, result))


def tanh(e: Emitter, x: V) -> V:
    """The hyperbolic tangent: a polynomial near 0, else 1 - 2/(exp(2|x|) + 1). Within 2 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    one = _number(e, x, 1.0)
    square = e.binary("fmul", x, x)
    small = _fma(e, e.binary("fmul", _series(e, square, _TANH), square), x, x)
    power = e.binary("fadd", exp(e, e.binary("fadd", size, size)), one)
    large = e.binary("fsub", one, e.binary("fdiv", _number(e, x, 2.0), power))
    # The sign last: of the sum above, that of -0 would be lost.
    return _with_sign(e, e.select(e.compare("fcmp olt", size, _number(e, x, 0.625)), small, large), x)


def erf(e: Emitter, x: V) -> V:
    """The error function: a polynomial near 0, else 1 - exp(polynomial of |x|). Within 3 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    small = e.binary("fmul", _series(e, e.binary("fmul", x, x), _ERF_SMALL), x)
    bounded = e.intrinsic("minnum", x.type, size, _number(e, x, 4.0))
    beyond = exp(e, _series(e, bounded, _ERF_LARGE))
    large = _with_sign(e, e.binary("fsub", _number(e, x, 1.0), beyond), x)
    return _nan_stays(e, x, e.select(e.compare("fcmp olt", size, _number(e, x, 0.92)), small, large))


def logistic(e: Emitter, x: V) -> V:
    """1/(1 + exp(-x)), as exp(x)/(1 + exp(x)) where x is negative: exp(-x) would overflow. Within 4 ulp."""
    one = _number(e, x, 1.0)
    size = e.intrinsic("fabs", x.type, x)
    shrunk = exp(e, e.value(x.type, f"fneg {size}"))
    negative = e.compare("fcmp olt", x, _number(e, x, 0.0))
    return e.binary("fdiv", e.select(negative, shrunk, one), e.binary("fadd", one, shrunk))
