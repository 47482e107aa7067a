"""Types of LLVM's values: scalars, and vectors of them."""

from __future__ import annotations

import functools
from dataclasses import field

from palladio.base.dataclass import dataclass


@dataclass(frozen=True)
class LlvmType:
    """The type of an SSA value: `width` scalars of one name. `str` gives its spelling in LLVM IR."""

    scalar: str
    width: int = 1
    text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.scalar if self.width == 1 else f"<{self.width} x {self.scalar}>")

    def __str__(self) -> str:
        return self.text

    @property
    def element(self) -> LlvmType:
        """The type of one lane."""
        return vector(self, 1)

    @property
    def is_float(self) -> bool:
        """True for floats, and vectors of them."""
        return self.scalar in _FLOATS

    @property
    def bits(self) -> int:
        """The size of one lane."""
        return _FLOATS.get(self.scalar) or int(self.scalar[1:])

    @property
    def mangled(self) -> str:
        """The spelling in the name of an overloaded intrinsic: `v16f32`, `i64`."""
        name = "p0" if self.scalar == "ptr" else f"f{_FLOATS[self.scalar]}" if self.is_float else self.scalar
        return name if self.width == 1 else f"v{self.width}{name}"


_FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


@functools.cache
def vector(element: LlvmType, width: int) -> LlvmType:
    """The type of `width` elements; the element itself for 1."""
    return LlvmType(element.scalar, width)


@functools.cache
def integer(bits: int) -> LlvmType:
    """The type of an integer."""
    return LlvmType(f"i{bits}")


I1, I8, I16, I32, I64 = map(integer, (1, 8, 16, 32, 64))
HALF, BFLOAT, FLOAT, DOUBLE, PTR = map(LlvmType, ("half", "bfloat", "float", "double", "ptr"))
