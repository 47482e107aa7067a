"""Names in the text of a kernel: those that users give to kernels, arrays, buffers, barriers and values, made safe.

A name is kept where it can be: accents and other signs outside of ASCII are dropped or replaced by `_`, and a name that
has a meaning in C++, in CUDA, in the header or in generated code gets a number. So generated code may use the reserved
names without regard to the kernel at hand. A test holds the texts of all conformance rows to them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import count

KEYWORDS = frozenset(
    {
        *("alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch"),
        *("char", "char8_t", "char16_t", "char32_t", "class", "co_await", "co_return", "co_yield", "compl", "concept"),
        *("const", "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default", "delete"),
        *("do", "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for"),
        *("friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq"),
        *("nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast"),
        *("requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct"),
        *("switch", "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename"),
        *("typeof", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq"),
    }
)
"""The keywords of C++20 and of GNU C++."""

TEXT = frozenset(
    {
        *("pal", "twin", "u8", "u16", "u32", "u64", "i64", "u32x2", "u32x4", "TensorMap", "main", "std"),
        *("smem", "warpgroup", "thread", "warp", "lane", "r", "t", "e", "along", "at", "best", "bits", "byte"),
        *("byte_at", "candidate", "element", "end", "expected", "first", "held", "index", "inside", "left", "other"),
        *("place", "rank", "right", "row", "seen", "step", "sum", "total", "turn", "value"),
    }
)
"""Names of the headers, and those that generated code gives to its own variables."""

NUMBERED = re.compile(r"(?:at|own|other)\d+")
"""Names that generated code numbers."""

FUNCTIONS = re.compile(
    r"""(?: a?(?:sin|cos|tan)h? | (?:sin|cos|sincos|tan)pi | sincos | atan2 | r?(?:sqrt|cbrt|hypot) | exp(?:2|10|m1)?
      | log(?:2|10|1p|b)? | pow[in]? | erfc?(?:inv|x)? | [lt]?gamma | normcdf(?:inv)? | r?norm(?:3d|4d)?
      | floor | ceil | l?l?r(?:int|ound) | round | trunc | nearbyint | fabs | l?l?abs | f?(?:min|max) | f?mod | modf
      | fdim | fma | remainder | remquo | div | fdivide | saturate | copysign | signbit | nextafter | nexttoward
      | is(?:nan|inf|finite|normal|unordered|(?:less|greater)(?:equal)?|lessgreater) | nan | finite | ldexp
      | frexp | scalbl?n | fpclassify | ilogb | significand | drem | [jy][01n] | cyl_bessel_i[01] | u?l?l?(?:min|max)
      | clz | ffs | popc )[fl]?""",
    re.VERBOSE,
)
"""Functions of the mathematics of C and CUDA."""

LIBRARY = re.compile(
    r"""(?: cuda | cu[A-Z] | CUuuid | libraryProperty | tex[123C] | surf[123C] | nv_ | va_ | atomic[A-Z] )\w*
      | (?: mem|str )(?: cpy|ncpy|set|cmp|ncmp|move|chr|len|cat ) | [cm]?alloca? | calloc | realloc | free | v?printf
      | puts | assert | abort | exit | trap | clock(?:64)? | signal | warpSize | (?: thread|block|grid )(?: Idx|Dim )
      | (?: make_ )?u?(?: char|short|int|long|longlong|float|double )[1234](?: _16a|_32a )? | dim3
      | (?: u?int(?: 8|16|32|64|ptr|max )|size|ssize|ptrdiff|max_align|l?l?div|clock|time )_t
      | [A-Z][A-Z0-9_]{2,}""",
    re.VERBOSE,
)
"""Types, variables and functions of C and CUDA, and capitals, which their macros have."""


def identifier(name: str, first: str = "v") -> str:
    """A name as an identifier of ASCII letters, digits and `_`; "" if it has no letter or digit.

    Args:
        first: precedes a digit.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    found = re.sub(r"\W", "_", plain).strip("_")
    return f"{first}{found}" if found[:1].isdigit() else found


@cache
def is_reserved(name: str) -> bool:
    """True for a name with a meaning in the text of any kernel."""
    return name in KEYWORDS or name in TEXT or any(each.fullmatch(name) for each in (NUMBERED, FUNCTIONS, LIBRARY))


def kernel_name(name: str) -> str:
    """The name of a kernel as a C++ function."""
    found = identifier(name, "k") or "kernel"
    return f"{found}_" if is_reserved(found) else found


def quoted(text: str) -> str:
    """A string literal in C; bytes that are not printable ASCII are octal escapes."""
    plain = ""
    for byte in text.encode():
        character = chr(byte)
        if character in '"\\':
            plain += f"\\{character}"
        else:
            plain += character if 32 <= byte < 127 else f"\\{byte:03o}"
    return f'"{plain}"'


class Names:
    """The names of one kernel: of its parameters, which all roles see, and of the variables of each role.

    Fields:
        parameters: names that no variable of a role has.
        roles: the names of the variables of each role.
    """

    def __init__(self) -> None:
        self.parameters: set[str] = set()
        self.roles: list[set[str]] = []

    def of_role(self) -> set[str]:
        """The names of another role, none so far."""
        self.roles.append(set())
        return self.roles[-1]

    def parameter(self, *candidates: str) -> str:
        """Name a parameter: the first free candidate, or the last one with a number."""
        found = unused(lambda name: any(name in names for names in (self.parameters, *self.roles)), *candidates)
        self.parameters.add(found)
        return found


def unused(taken: Callable[[str], bool], *candidates: str) -> str:
    """The first candidate, an identifier, that is neither reserved nor taken, or the last one with a number."""
    for name in candidates:
        if not is_reserved(name) and not taken(name):
            return name
    return next(name for n in count(2) if not taken(name := f"{candidates[-1]}_{n}"))
