"""The constants of `vector_math`, for float32 and for float64: polynomials, limits and constants split into parts.

The polynomials are minimax fits of the relative error (Remez's algorithm, in more digits than are kept), so that the
error of each is well below one unit in the last place. The highest power comes first.
"""

from __future__ import annotations

import math

from palladio.base.dataclass import dataclass
from palladio.cpu.emit import llvm_types
from palladio.cpu.emit.llvm_types import LlvmType

Series = tuple[float, ...]


@dataclass(frozen=True)
class Precision:
    """A floating-point type, and its constants.

    Fields:
        element, word: the type, and the integer of its width.
        mantissa, bias: bits after the leading one; the offset of exponents.
        exp: exp(r) for |r| <= ln(2)/2.
        exp2: 2**r for |r| <= 1/2.
        exp_bounds, exp2_bounds: arguments outside give 0, or infinity.
        ln_2: ln(2) in two parts, the first with so few bits that its product with any exponent is exact.
        tanh: (tanh(x)/x - 1)/x**2 in x*x, for |x| <= 0.625.
        sin, cos: (sin(r)/r - 1)/r**2 and (cos(r) - 1 + r*r/2)/r**4 in r*r, for |r| a little beyond pi/4.
        tan: (tan(r)/r - 1)/r**2 in r*r, for the same.
        sinh: (sinh(x)/x - 1)/x**2 in x*x, for |x| <= 1.
        asin: (asin(x)/x - 1)/x**2 in x*x, for |x| <= 1/2.
        atan: (atan(x)/x - 1)/x**2 in x*x, for |x| <= 1.
        half_pi: pi/2 as a sum.
        pi_excess: the relative rounding error of pi, and of pi/2.
        far: the argument from which the count of quarter turns is not exact enough.
    """

    element: LlvmType
    word: LlvmType
    mantissa: int
    bias: int
    exp: Series
    exp2: Series
    exp_bounds: tuple[float, float]
    exp2_bounds: tuple[float, float]
    ln_2: tuple[float, float]
    tanh: Series
    sin: Series
    cos: Series
    tan: Series
    sinh: Series
    asin: Series
    atan: Series
    half_pi: tuple[float, float, float]
    pi_excess: float
    far: float

    @property
    def bits(self) -> int:
        """The width of the type."""
        return self.word.bits

    @property
    def infinity(self) -> int:
        """The bits of infinity."""
        return (2 * self.bias + 1) << self.mantissa

    @property
    def root_half(self) -> int:
        """The bits of sqrt(1/2)."""
        return round((math.sqrt(0.5) - 0.5) * 2 ** (self.mantissa + 1)) + ((self.bias - 1) << self.mantissa)

    @property
    def least_normal(self) -> float:
        """The least normal number."""
        return 2.0 ** (1 - self.bias)

    def bits_of(self, value: float) -> int:
        """The bits of a power of two."""
        return (int(math.log2(value)) + self.bias) << self.mantissa


SINGLE = Precision(
    element=llvm_types.FLOAT,
    word=llvm_types.I32,
    mantissa=23,
    bias=127,
    exp=(1.3863749336e-03, 8.3674974740e-03, 4.1667237878e-02, 1.6666534543e-01, 0.5, 1.0, 1.0),
    exp2=(1.5328363224e-4, 1.3390999520e-3, 9.6185021102e-3, 5.5503595620e-2, 2.4022647738e-1, 6.9314718246e-1, 1.0),
    exp_bounds=(-104.0, 90.0),
    exp2_bounds=(-151.0, 129.0),
    ln_2=(0.693359375, -2.12194440e-4),
    tanh=(-5.7049783975e-03, 2.0639078765e-02, -5.3739712165e-02, 1.3331442158e-01, -3.3333281940e-01),
    sin=(-1.9508741389e-04, 8.3321128041e-03, -1.6666653752e-01),
    cos=(2.4425680749e-05, -1.3887251262e-03, 4.1666645557e-02),
    tan=(
        4.4861128554e-03,
        -1.2924220937e-04,
        1.1005093344e-02,
        2.1218251437e-02,
        5.4072011262e-02,
        1.3332559168e-01,
        3.3333352208e-01,
    ),
    sinh=(2.8169513371e-06, 1.9836159481e-04, 8.3333496004e-03, 1.6666667163e-01),
    asin=(4.2166307569e-02, 2.4179514498e-02, 4.5470375568e-02, 7.4952974916e-02, 1.6666752100e-01),
    atan=(
        -1.7936222721e-03,
        1.0914608836e-02,
        -3.1177850440e-02,
        5.7957600802e-02,
        -8.4034509957e-02,
        1.0952185839e-01,
        -1.4264242351e-01,
        1.9998548925e-01,
        -3.3333298564e-01,
    ),
    half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    pi_excess=-2.7827534e-08,
    far=2.0**17,
)

DOUBLE = Precision(
    element=llvm_types.DOUBLE,
    word=llvm_types.I64,
    mantissa=52,
    bias=1023,
    exp=(
        2.497830266302972e-08,
        2.7625311541449417e-07,
        2.7557641870728242e-06,
        2.4801508394056185e-05,
        0.00019841269464339423,
        0.0013888888927004585,
        0.008333333333501183,
        0.0416666666666035,
        0.16666666666666433,
        0.5,
        1.0,
        1.0,
    ),
    exp2=(
        4.43476083326497e-10,
        7.073786700460155e-09,
        1.0178199664402237e-07,
        1.3215435263664818e-06,
        1.52527334928553e-05,
        0.0001540353045714636,
        0.0013333558146774948,
        0.009618129107594096,
        0.055504108664820084,
        0.2402265069591013,
        0.6931471805599453,
        1.0,
    ),
    exp_bounds=(-746.0, 711.0),
    exp2_bounds=(-1076.0, 1025.0),
    ln_2=(0.693147180369123816490, 1.90821492927058770002e-10),
    tanh=(
        6.050043858603084e-06,
        -3.0205448324175035e-05,
        9.157756655377528e-05,
        -0.0002370232704339195,
        0.0005894561976743993,
        -0.0014557270521926892,
        0.0035921141840208988,
        -0.008863234332678414,
        0.021869488470093346,
        -0.053968253966113704,
        0.1333333333332985,
        -0.33333333333333315,
    ),
    sin=(
        1.5896175447016024e-10,
        -2.5050747739356126e-08,
        2.7557313627835014e-06,
        -0.00019841269829629744,
        0.0083333333333222,
        -0.16666666666666632,
    ),
    cos=(
        -1.135922874373973e-11,
        2.0875715449680686e-09,
        -2.7557314296891346e-07,
        2.480158728929811e-05,
        -0.0013888888888873843,
        0.041666666666666595,
    ),
    tan=(
        9.893917353195028e-06,
        -2.4710171192422447e-05,
        4.9538345646559916e-05,
        -2.6743007243421406e-05,
        6.812327302778386e-05,
        8.30491741656967e-05,
        0.00024395675776334606,
        0.0005888048447266145,
        0.0014560579879760824,
        0.0035920990552430507,
        0.008863238105227591,
        0.021869488387467127,
        0.05396825397335844,
        0.13333333333324457,
        0.33333333333333387,
    ),
    sinh=(
        7.759311634581588e-13,
        1.6057240359179812e-10,
        2.5052123398342235e-08,
        2.7557319155338035e-06,
        0.00019841269841437678,
        0.008333333333333139,
        0.16666666666666669,
    ),
    asin=(
        0.03267863304144059,
        -0.021080230780711497,
        0.021765697126853202,
        0.0036820811959390786,
        0.010786801087660152,
        0.01139772374109709,
        0.013980968378603955,
        0.017351599459122742,
        0.022372215699315925,
        0.030381942682060625,
        0.04464285717515803,
        0.07499999999970215,
        0.16666666666666763,
    ),
    atan=(
        1.348621843856298e-05,
        -0.0001547655835272659,
        0.0008433348383125522,
        -0.0029189042334443653,
        0.007262479173443603,
        -0.013993703615474275,
        0.022083740113382242,
        -0.02998437909224244,
        0.0366927442697416,
        -0.04221677518308654,
        0.0472327711806318,
        -0.052538004577947724,
        0.058805913242210364,
        -0.06666414772657611,
        0.07692281156399167,
        -0.09090907116327435,
        0.11111111013459088,
        -0.1428571428279436,
        0.1999999999995526,
        -0.33333333333333093,
    ),
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
    pi_excess=3.8981718325193755e-17,
    far=2.0**30,
)

# (log(1+f) - f + f*f/2)/f**3 for sqrt(1/2) <= 1+f <= sqrt(2), of float32.
LOG_SINGLE = (
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
# (log((1+s)/(1-s)) - 2*s)/s**3 in s*s for the same numbers, of float64.
LOG_DOUBLE = (
    0.14797509228849082,
    0.1531390299885882,
    0.1818356975450618,
    0.22222198475571647,
    0.28571428743268507,
    0.39999999999411057,
    0.6666666666666735,
)

PRECISIONS = {precision.element: precision for precision in (SINGLE, DOUBLE)}
