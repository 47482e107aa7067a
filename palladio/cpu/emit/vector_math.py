"""Functions of float32 and float64 on whole vectors, without calls and almost without branches.

The C library's functions would be called lane by lane, which makes a kernel ten times slower. They are called only for
trigonometric functions of huge arguments, and in float64 for the error function, the cube root, and trigonometric
functions on hosts without fused multiply-add. `float_tables` has the constants. Each function gives its error in units
in the last place (ulp).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from palladio.cpu.emit import registers
from palladio.cpu.emit.emitter import Emitter, V
from palladio.cpu.emit.float_tables import LOG_DOUBLE, LOG_SINGLE, PRECISIONS, SINGLE, Precision
from palladio.cpu.emit.llvm_types import DOUBLE, FLOAT, I8, I16, I32, vector
from palladio.cpu.runtime import host

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
# log(erfc(x)) for 0.92 <= x <= 4, weighted by erfc(x), since the result is 1 - erfc(x).
_ERF_LARGE = (
    1.9593826201e-04,
    -3.0432267731e-03,
    2.2226955254e-02,
    -1.0393166457e-01,
    -6.3718217517e-01,
    -1.1276756665e00,
    -1.9566651456e-04,
)
# pi/2 as a sum of float64 for float32: the product of the first with a count below 2**20 is exact.
_HALF_PI_WIDE = (1.5707963267341256, 6.077100506506192e-11)
# The bits of a float32, divided by 3, plus this are the bits of its cube root within 3.5%.
_CBRT_BITS = 709953344


def _precision(x: V) -> Precision:
    return PRECISIONS[x.type.element]


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
    """x clamped between two numbers; a NaN stays."""
    for op, bound in (("fcmp olt", _number(e, x, high)), ("fcmp ogt", _number(e, x, low))):
        x = e.select(
            e.compare(op, bound, x), bound, x
        )  # one instruction, as that returns its second operand if the two are unordered
    return x


def _has_scale(x: V) -> bool:
    """True if the host multiplies by powers of two in one instruction."""
    return x.type in (vector(FLOAT, 16), vector(DOUBLE, 8)) and host.current().scales


def _keep_nan(e: Emitter, x: V, result: V) -> V:
    return e.select(e.compare("fcmp uno", x, x), x, result)


def _power_of_two(e: Emitter, exponent: V, precision: Precision) -> V:
    """2**n, for an n in the range of exponents."""
    biased = e.binary("add", exponent, e.constant(precision.bias, exponent.type))
    biased = e.convert("sext", biased, precision.word)
    bits = e.binary("shl", biased, e.constant(precision.mantissa, biased.type))
    return e.convert("bitcast", bits, precision.element)


def _scaled(e: Emitter, whole: V, left: V, coefficients: Sequence[float]) -> V:
    """2**whole times a power series of the remainder."""
    precision = _precision(left)
    if _has_scale(left):
        # For a power that is NaN or beyond all exponents, the remainder is arbitrary. The scale alone decides then, if
        # the series is a positive number: clearing one bit makes |left| < 2.
        bits = _bits(e, left)
        kept = e.binary("and", bits, e.constant(~(1 << (precision.bits - 2)), bits.type))
        left = e.convert("bitcast", kept, precision.element)
        now = V("4", I32)  # the current rounding mode
        series = _series(e, left, coefficients)
        name, mask = ("ps", I16) if precision is SINGLE else ("pd", I8)
        arguments = series, whole, series, V("-1", mask), now
        return e.intrinsic(f"x86.avx512.mask.scalef.{name}", series.type, *arguments, suffix="512")
    # In two factors, since 2**n itself can be below the range of exponents.
    series = _series(e, left, coefficients)
    exponent = e.convert("fptosi", whole, I32)
    half = e.binary("ashr", exponent, e.constant(1, exponent.type))
    for power in (half, e.binary("sub", exponent, half)):
        series = e.binary("fmul", series, _power_of_two(e, power, precision))
    return series


def exp(e: Emitter, x: V, *, halved: bool = False) -> V:
    """e to the power x, or half of that: 2**n times a polynomial of the remainder. Within 2 ulp."""
    precision = _precision(x)
    bounded = x if _has_scale(x) else _bounded(e, x, *precision.exp_bounds)
    whole = e.intrinsic("rint", x.type, e.binary("fmul", bounded, _number(e, x, math.log2(math.e))))
    left = bounded
    for part in precision.ln_2:
        left = _fma(e, whole, _number(e, x, -part), left)
    if halved:
        whole = e.binary("fsub", whole, _number(e, x, 1.0))
    result = _scaled(e, whole, left, precision.exp)
    return result if _has_scale(x) else _keep_nan(e, x, result)


def exp2(e: Emitter, x: V) -> V:
    """2 to the power x. Within 2 ulp."""
    bounded = x if _has_scale(x) else _bounded(e, x, *_precision(x).exp2_bounds)
    whole = e.intrinsic("rint", x.type, bounded)
    result = _scaled(e, whole, e.binary("fsub", bounded, whole), _precision(x).exp2)
    return result if _has_scale(x) else _keep_nan(e, x, result)


def log(e: Emitter, x: V) -> V:
    """The natural logarithm: that of the power of two, plus a polynomial of the mantissa around 1. Within 2 ulp."""
    precision = _precision(x)
    tiny = e.compare("fcmp olt", x, _number(e, x, precision.least_normal))
    raised = e.select(tiny, e.binary("fmul", x, _number(e, x, 2.0**precision.mantissa)), x)
    bits = _bits(e, raised)

    def integer(value: int) -> V:
        return e.constant(value, bits.type)

    # The exponent for which the mantissa is between sqrt(1/2) and sqrt(2).
    offset = e.binary("sub", bits, integer(precision.root_half))
    exponent = e.binary("ashr", offset, integer(precision.mantissa))
    mantissa = e.binary("sub", bits, e.binary("shl", exponent, integer(precision.mantissa)))
    f = e.binary("fsub", e.convert("bitcast", mantissa, precision.element), _number(e, x, 1.0))
    power = e.convert("sitofp", e.convert("trunc", exponent, I32), precision.element)
    shift = e.select(tiny, _number(e, x, precision.mantissa), _number(e, x, 0.0))
    power = e.binary("fsub", power, shift)
    near = _log_near_one if precision is SINGLE else _wide_log_near_one
    result = near(e, f, power)
    infinite = e.compare("fcmp oeq", x, _number(e, x, math.inf))
    result = e.select(infinite, x, result)
    zero = _number(e, x, 0.0)
    result = e.select(e.compare("fcmp ult", x, zero), _number(e, x, math.nan), result)
    return e.select(e.compare("fcmp oeq", x, zero), _number(e, x, -math.inf), result)


def _log_near_one(e: Emitter, f: V, power: V) -> V:
    """log(1 + f) plus a multiple of log(2), of float32."""
    most, rest = (_number(e, f, part) for part in _precision(f).ln_2)
    square = e.binary("fmul", f, f)
    series = _series(e, f, LOG_SINGLE)
    tail = _fma(e, series, e.binary("fmul", square, f), e.binary("fmul", square, _number(e, f, -0.5)))
    tail = _fma(e, power, rest, tail)
    return _fma(e, power, most, e.binary("fadd", f, tail))


def _wide_log_near_one(e: Emitter, f: V, power: V) -> V:
    """log(1 + f) plus a multiple of log(2), of float64: half as many powers of s, where 1 + f = (1 + s)/(1 - s)."""
    most, rest = (_number(e, f, part) for part in _precision(f).ln_2)
    s = e.binary("fdiv", f, e.binary("fadd", f, _number(e, f, 2.0)))
    square = e.binary("fmul", s, s)
    half = e.binary("fmul", e.binary("fmul", f, _number(e, f, 0.5)), f)
    above = _fma(e, _series(e, square, LOG_DOUBLE), square, half)
    small = _fma(e, s, above, e.binary("fmul", power, rest))
    return _fma(e, power, most, e.binary("fsub", f, e.binary("fsub", half, small)))


def log1p(e: Emitter, x: V) -> V:
    """The logarithm of 1 + x: rounding 1 + x hardly changes log(1+x)/x, which is multiplied by x. Within 4 ulp."""
    one = _number(e, x, 1.0)
    more = e.binary("fadd", one, x)
    change = e.binary("fsub", more, one)
    result = e.binary("fmul", log(e, more), e.binary("fdiv", x, change))
    same = e.binary("or", e.compare("fcmp oeq", more, one), e.compare("fcmp oeq", more, _number(e, x, math.inf)))
    return e.select(same, x, result)


def expm1(e: Emitter, x: V) -> V:
    """The exponential of x, minus 1, times x / log(exp(x)), which corrects the rounding of exp(x). Within 4 ulp."""
    one = _number(e, x, 1.0)
    power = exp(e, x)
    change = e.binary("fsub", power, one)
    result = e.binary("fmul", change, e.binary("fdiv", x, log(e, power)))
    # Far from 1 the difference is exact enough, and the logarithm of 0 or infinity would be useless.
    far = e.compare("fcmp ogt", e.intrinsic("fabs", x.type, x), _number(e, x, 2.0))
    return e.select(e.compare("fcmp oeq", power, one), x, e.select(far, change, result))


def tanh(e: Emitter, x: V) -> V:
    """The hyperbolic tangent: a polynomial near 0, else 1 - 2/(exp(2|x|) + 1). Within 2 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    one = _number(e, x, 1.0)
    square = e.binary("fmul", x, x)
    small = _fma(e, e.binary("fmul", _series(e, square, _precision(x).tanh), square), x, x)
    power = e.binary("fadd", exp(e, e.binary("fadd", size, size)), one)
    large = e.binary("fsub", one, e.binary("fdiv", _number(e, x, 2.0), power))
    # The sign is set last: the sum above would lose that of -0.
    return _with_sign(e, e.select(e.compare("fcmp olt", size, _number(e, x, 0.625)), small, large), x)


def erf(e: Emitter, x: V) -> V:
    """The error function of float32: a polynomial near 0, else 1 - exp(polynomial of |x|). Within 3 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    small = e.binary("fmul", _series(e, e.binary("fmul", x, x), _ERF_SMALL), x)
    bounded = e.intrinsic("minnum", x.type, size, _number(e, x, 4.0))
    beyond = exp(e, _series(e, bounded, _ERF_LARGE))
    large = _with_sign(e, e.binary("fsub", _number(e, x, 1.0), beyond), x)
    return _keep_nan(e, x, e.select(e.compare("fcmp olt", size, _number(e, x, 0.92)), small, large))


def logistic(e: Emitter, x: V) -> V:
    """1/(1 + exp(-x)), as exp(x)/(1 + exp(x)) for negative x: exp(-x) would overflow. Within 4 ulp."""
    one = _number(e, x, 1.0)
    size = e.intrinsic("fabs", x.type, x)
    shrunk = exp(e, e.value(x.type, f"fneg {size}"))
    negative = e.compare("fcmp olt", x, _number(e, x, 0.0))
    return e.binary("fdiv", e.select(negative, shrunk, one), e.binary("fadd", one, shrunk))


def _bits(e: Emitter, x: V) -> V:
    return e.convert("bitcast", x, _precision(x).word)


def _flipped(e: Emitter, x: V, signs: V) -> V:
    """x with its sign flipped if the first bit of `signs` is set."""
    precision = _precision(x)
    first = e.binary("and", signs, e.constant(-(1 << (precision.bits - 1)), signs.type))
    return e.convert("bitcast", e.binary("xor", _bits(e, x), first), precision.element)


def _odd_series(e: Emitter, x: V, square: V, coefficients: Sequence[float]) -> V:
    """x + x**3 times a polynomial of x*x."""
    return _fma(e, e.binary("fmul", _series(e, square, coefficients), square), x, x)


def _lane_by_lane(e: Emitter, name: str, x: V) -> V:
    """A call of a function that calls the C library's function for each lane."""
    function = f"far_{name}_{x.type.mangled}"
    body = Emitter()
    result = body.intrinsic(name, x.type, V("%x", x.type))
    lines = [f"define internal {x.type} @{function}({x.type} %x) cold noinline {{", *body.lines, f"  ret {result}", "}"]
    e.declared |= body.declared | {function: "\n".join(lines)}
    return e.value(x.type, f"call {x.type} @{function}({x})")


def _with_library_fallback(e: Emitter, name: str, x: V, near: V) -> V:
    """A result, or that of the C library for finite arguments from `far` on: a branch that is hardly ever taken."""
    precision = _precision(x)
    size = e.intrinsic("fabs", x.type, x)
    least = precision.bits_of(precision.far)
    above = e.binary("sub", _bits(e, size), e.constant(least, vector(precision.word, x.type.width)))
    far = e.compare("icmp ult", above, e.constant(precision.infinity - least, above.type))
    lanes = e.mask(far)
    # Frozen, since lanes past the end of an array may be anything.
    some = e.value(lanes.type, f"freeze {lanes}")
    before, rare, after = e.block, e.fresh("far"), e.fresh("near")
    e.branch(e.compare("icmp ne", some, e.constant(0, some.type)), rare, after)
    e.label(rare)
    found = e.select(far, _lane_by_lane(e, name, x), near)
    e.jump(after)
    e.label(after)
    return e.value(x.type, f"phi {x.type} [ {near.text}, %{before} ], [ {found.text}, %{rare} ]")


def _quarters(e: Emitter, x: V) -> tuple[V, V]:
    """x divided by pi/2, rounded: as a number, and in the last bits of an integer."""
    # A number so large that its last bit is worth one.
    large = _number(e, x, 1.5 * 2.0 ** _precision(x).mantissa)
    count = _fma(e, x, _number(e, x, 2 / math.pi), large)
    return e.binary("fsub", count, large), _bits(e, count)


def _left_and_rest(e: Emitter, x: V, turns: V) -> tuple[V, V]:
    """x minus some quarter turns, rounded, and the rounding error."""
    if host.current().fuses:
        first, second, third = (_number(e, x, -part) for part in _precision(x).half_pi)
        close = _fma(e, turns, first, x)  # exact
        product = e.binary("fmul", turns, second)
        total = e.binary("fadd", close, product)
        lost = e.binary("fadd", e.binary("fsub", close, total), product)
        lost = e.binary("fadd", lost, _fma(e, turns, second, e.value(x.type, f"fneg {product}")))
        lost = _fma(e, turns, third, lost)
        left = e.binary("fadd", total, lost)
        return left, e.binary("fadd", e.binary("fsub", total, left), lost)
    exact, turns = e.convert("fpext", x, DOUBLE), e.convert("fpext", turns, DOUBLE)
    for part in _HALF_PI_WIDE:
        exact = _fma(e, turns, _number(e, exact, -part), exact)
    left = e.convert("fptrunc", exact, FLOAT)
    return left, e.convert("fptrunc", e.binary("fsub", exact, e.convert("fpext", left, DOUBLE)), FLOAT)


def _left(e: Emitter, x: V, turns: V) -> V:
    """x minus some quarter turns, within 1 ulp."""
    if not host.current().fuses:
        return _left_and_rest(e, x, turns)[0]
    for part in _precision(
        x
    ).half_pi:  # the first difference is exact; the rounding error of the second is at most half a unit
        x = _fma(e, turns, _number(e, x, -part), x)
    return x


def _is_odd(e: Emitter, quarters: V) -> V:
    last = e.binary("and", quarters, e.constant(1, quarters.type))
    return e.compare("icmp ne", last, e.constant(0, quarters.type))


def _sine_after(e: Emitter, left: V, quarters: V) -> V:
    """The sine of some quarter turns plus a remainder."""
    precision = _precision(left)
    square = e.binary("fmul", left, left)
    sine = _odd_series(e, left, square, precision.sin)
    beyond = _fma(e, _series(e, square, precision.cos), square, _number(e, left, -0.5))
    cosine = _fma(e, beyond, square, _number(e, left, 1.0))
    signs = e.binary("shl", quarters, e.constant(precision.bits - 2, quarters.type))
    return _flipped(e, e.select(_is_odd(e, quarters), cosine, sine), signs)


def sin(e: Emitter, x: V) -> V:
    """The sine: subtract a multiple of pi/2, then one of two polynomials. Within 2 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    turns, quarters = _quarters(e, size)
    # The sign is set last: the differences would lose that of -0.
    return _with_library_fallback(
        e, "sin", x, _flipped(e, _sine_after(e, _left(e, size, turns), quarters), _bits(e, x))
    )


def cos(e: Emitter, x: V) -> V:
    """The cosine, as the sine a quarter turn further. Within 2 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    turns, quarters = _quarters(e, size)
    following = e.binary("add", quarters, e.constant(1, quarters.type))
    return _with_library_fallback(e, "cos", x, _sine_after(e, _left(e, size, turns), following))


def tan(e: Emitter, x: V) -> V:
    """The tangent: subtract a multiple of pi/2, then a polynomial or -1 divided by it. Within 2 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    turns, quarters = _quarters(e, size)
    left, rest = _left_and_rest(e, size, turns)
    square = e.binary("fmul", left, left)
    more = e.binary("fmul", e.binary("fmul", _series(e, square, _precision(x).tan), square), left)
    more = _fma(e, rest, e.binary("fadd", _number(e, x, 1.0), square), more)
    tangent = e.binary("fadd", left, more)
    across = e.binary("fdiv", _number(e, x, -1.0), tangent)
    # A step of Newton's method, which includes the rounding error of the tangent.
    lost = e.binary("fadd", e.binary("fsub", left, tangent), more)
    fault = _fma(e, across, lost, _fma(e, across, tangent, _number(e, x, 1.0)))
    across = _fma(e, across, fault, across)
    near = _flipped(e, e.select(_is_odd(e, quarters), across, tangent), _bits(e, x))
    return _with_library_fallback(e, "tan", x, near)


def sinh(e: Emitter, x: V) -> V:
    """The hyperbolic sine: a polynomial near 0, else exponentials, halved before they overflow. Within 2 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    small = _odd_series(e, size, e.binary("fmul", size, size), _precision(x).sinh)
    half = exp(e, size, halved=True)
    large = e.binary("fsub", half, e.binary("fdiv", _number(e, x, 0.25), half))
    return _with_sign(e, e.select(e.compare("fcmp olt", size, _number(e, x, 1.0)), small, large), x)


def cosh(e: Emitter, x: V) -> V:
    """The hyperbolic cosine, from exponentials that are halved before they overflow. Within 2 ulp."""
    half = exp(e, e.intrinsic("fabs", x.type, x), halved=True)
    return e.binary("fadd", half, e.binary("fdiv", _number(e, x, 0.25), half))


def _half_angle(e: Emitter, x: V) -> tuple[V, V]:
    """True if |x| > 1/2; the arc sine of |x| if not, else half the angle whose cosine |x| is."""
    size = e.intrinsic("fabs", x.type, x)
    half = _number(e, x, 0.5)
    large = e.compare("fcmp ogt", size, half)
    versine = e.binary("fmul", e.binary("fsub", _number(e, x, 1.0), size), half)
    square = e.select(large, versine, e.binary("fmul", size, size))
    sine = e.select(large, e.intrinsic("sqrt", x.type, versine), size)
    return large, _odd_series(e, sine, square, _precision(x).asin)


def _added(e: Emitter, base: V, x: V) -> V:
    """0, pi/2 or pi, plus x, corrected by the rounding error of pi."""
    return _fma(e, base, _number(e, x, _precision(x).pi_excess), e.binary("fadd", base, x))


def asin(e: Emitter, x: V) -> V:
    """The arc sine: a polynomial, beyond 1/2 for half of the complementary angle. Within 2 ulp."""
    large, angle = _half_angle(e, x)
    rest = _added(e, _number(e, x, math.pi / 2), e.binary("fmul", angle, _number(e, x, -2.0)))
    return _with_sign(e, e.select(large, rest, angle), x)


def acos(e: Emitter, x: V) -> V:
    """The arc cosine, from the angle of `asin`. Within 2 ulp."""
    large, angle = _half_angle(e, x)
    twice = _with_sign(e, e.binary("fadd", angle, angle), x)
    zero = _number(e, x, 0.0)
    base = e.select(e.compare("fcmp olt", x, zero), _number(e, x, math.pi), zero)
    base = e.select(large, base, _number(e, x, math.pi / 2))
    return _added(e, base, e.select(large, twice, e.binary("fsub", zero, _with_sign(e, angle, x))))


def _arc(e: Emitter, high: V, wide: V) -> tuple[V, V]:
    """True if the angle of a triangle is above pi/4, and the smaller of its two acute ones."""
    steep = e.compare("fcmp ogt", high, wide)
    short, long = e.select(steep, wide, high), e.select(steep, high, wide)
    zero, one = _number(e, high, 0.0), _number(e, high, 1.0)
    # 0/0 counts as 0, and infinity/infinity as 1.
    whole = e.select(e.compare("fcmp oeq", short, zero), zero, one)
    slope = e.select(e.compare("fcmp oeq", short, long), whole, e.binary("fdiv", short, long))
    return steep, _odd_series(e, slope, e.binary("fmul", slope, slope), _precision(high).atan)


def atan(e: Emitter, x: V) -> V:
    """The arc tangent: a polynomial of x, or of 1/x beyond 1. Within 2 ulp."""
    steep, angle = _arc(e, e.intrinsic("fabs", x.type, x), _number(e, x, 1.0))
    rest = _added(e, _number(e, x, math.pi / 2), e.value(x.type, f"fneg {angle}"))
    return _with_sign(e, e.select(steep, rest, angle), x)


def atan2(e: Emitter, y: V, x: V) -> V:
    """The angle of the point (x, y), with the sign of y. Within 2 ulp."""
    steep, angle = _arc(e, e.intrinsic("fabs", y.type, y), e.intrinsic("fabs", x.type, x))
    left = e.compare("icmp slt", _bits(e, x), e.constant(0, vector(_precision(x).word, x.type.width)))
    base = e.select(left, _number(e, x, math.pi), _number(e, x, 0.0))
    base = e.select(steep, _number(e, x, math.pi / 2), base)
    back = e.binary("xor", steep, left)
    return _with_sign(e, _added(e, base, e.select(back, e.value(x.type, f"fneg {angle}"), angle)), y)


def cbrt(e: Emitter, x: V) -> V:
    """The cube root of float32: a guess from the bits, and two steps of Halley's method. Within 2 ulp."""
    size = e.intrinsic("fabs", x.type, x)
    tiny = e.compare("fcmp olt", size, _number(e, x, 2.0**-126))
    raised = e.select(tiny, e.binary("fmul", size, _number(e, x, 2.0**24)), size)
    third = e.binary("fmul", e.convert("sitofp", _bits(e, raised), FLOAT), _number(e, x, 1 / 3))
    guess = e.convert("fptosi", third, I32)
    root = e.convert("bitcast", e.binary("add", guess, e.constant(_CBRT_BITS, guess.type)), FLOAT)
    for _ in range(2):
        edge = e.binary("fdiv", raised, e.binary("fmul", root, root))
        change = e.binary("fdiv", e.binary("fsub", edge, root), e.binary("fadd", e.binary("fadd", root, root), edge))
        root = _fma(e, change, root, root)
    root = e.select(tiny, e.binary("fmul", root, _number(e, x, 2.0**-8)), root)
    # 0, infinity and NaN are their own roots.
    least = e.binary("sub", _bits(e, size), e.constant(1, guess.type))
    ordinary = e.compare("icmp ult", least, e.constant(SINGLE.infinity - 1, guess.type))
    return e.select(ordinary, _with_sign(e, root, x), x)
