"""The table of primitives and the header say the same."""

from __future__ import annotations

import re
from pathlib import Path

import palladio.hopper
from palladio.hopper.primitives import CALLERS, MACROS, PRIMITIVES

HEADER = (Path(palladio.hopper.__file__).parent / "device.cuh").read_text()
DEFINITION = re.compile(r"(?:(template <[^>]*>) )?PAL_DEVICE (\w+ \w+\([^{]*\)) \{")


def defined() -> list[str]:
    joined = re.sub(r"\s+", " ", HEADER)
    return [f"{template} {rest}".strip() for template, rest in DEFINITION.findall(joined)]


def test_the_header_defines_what_the_table_declares() -> None:
    assert sorted(defined()) == sorted(each.signature for each in PRIMITIVES)


def test_the_header_has_the_macros() -> None:
    assert set(MACROS) <= set(re.findall(r"#define (\w+)", HEADER))


def test_each_primitive_says_who_calls_it_and_what_defines_it() -> None:
    assert all(each.caller in CALLERS and each.doc and each.source for each in PRIMITIVES)
