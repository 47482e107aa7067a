"""Program text with random faults: it is read, or a user error says what is wrong. Nothing else comes out."""

from __future__ import annotations

import random
import re

import pytest

from palladio.base.errors import PalladioError
from palladio.ops import parse
from tests.filetests.test_filetests import FILES

_TOKENS = re.compile(r"\w+|\s+|.", re.DOTALL)
TEXTS = [_TOKENS.findall(re.sub(r"#[^\n]*", "", path.read_text())) for path in FILES]
PIECES = (
    *("-4", "1.5", "None", "1e999", "007", "inf", "nan", "True", "99999999999999999999", "9" * 5000, "0"),
    *("(", ")", "[", "]", "{", "}", "<", ">", ",", ":", "=", ".", "+", "-", "- -", "#", "?", "\0"),
    *('"', "'a'", r"'\x'", "'\n'", "program", "return", "ref", "space", "i32", "bool", "f32[2]"),
    *("bitcast", "peer", "reshape", "transpose"),
)


def spoiled(rng: random.Random) -> str:
    """The text of a program with some pieces removed, replaced, added or exchanged."""
    tokens = list(rng.choice(TEXTS))
    for _ in range(rng.randint(1, 3)):
        place, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(4):
            case 0:
                tokens[place] = rng.choice(PIECES)
            case 1:
                tokens.insert(place, rng.choice(PIECES))
            case 2:
                tokens[place], tokens[other] = tokens[other], tokens[place]
            case _:
                del tokens[place : place + rng.randint(1, 20)]
                tokens = tokens or [""]
    return "".join(tokens)


@pytest.mark.filterwarnings("error")
def test_spoiled_text_is_read_or_is_a_user_error() -> None:
    refused = 0
    for seed in range(1500):
        text = spoiled(random.Random(seed))
        try:
            parse(text)
        except PalladioError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{text}") from error
    assert refused > 500
