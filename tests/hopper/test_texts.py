"""The text of the library's kernels, kept: a change of the generator shows in the difference.

The lines of the source that the text refers to are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio.gpu as plgpu
from palladio.hopper.compile import located
from palladio.library import hopper
from palladio.types.types import ShapeDtypeStruct
from tests.hopper.kernels import BF16, lowered


def bf16(*shape: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, BF16)


SIZES = ShapeDtypeStruct((8,), np.int32)
ALONE = hopper.MatmulConfig()
KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matmul": (hopper.matmul, (bf16(4096, 4096), bf16(4096, 4096))),
    "alone": (lambda x, y: hopper.matmul(x, y, config=ALONE), (bf16(4096, 4096), bf16(4096, 4096))),
    "gmm": (hopper.gmm, (bf16(4096, 2048), bf16(8, 2048, 4096), SIZES)),
    "tgmm": (hopper.tgmm, (bf16(2048, 4096), bf16(4096, 2048), SIZES)),
    "attention": (hopper.attention, tuple(bf16(8, 2048, 128) for _ in range(3))),
}


@pytest.fixture(autouse=True)
def any_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text does not depend on the machine that the tests run on."""
    monkeypatch.setattr(plgpu, "multiprocessors", lambda: plgpu.H100_SXM.multiprocessors)


def without_lines(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("#line"))


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_is_the_known_one(name: str, golden: Callable[..., None]) -> None:
    function, inputs = KERNELS[name]
    found = lowered(function, *inputs)
    head = f"// grid {found.grid}, cluster {found.cluster}, {found.threads} threads, {found.shared_bytes} bytes shared"
    maps = [f"// {each.name}: {each.spec}" for each in found.parameters if hasattr(each, "spec")]
    golden("\n".join([head, *maps, without_lines(found.text)]), f"golden/{name}.cu")


def test_the_text_refers_to_the_lines_of_the_source() -> None:
    function, inputs = KERNELS["matmul"]
    places = [line for line in lowered(function, *inputs).text.splitlines() if line.startswith("#line")]
    assert any(place.endswith('library/hopper/matmul.py"') for place in places)
    assert any(place.endswith('library/hopper/epilogue.py"') for place in places)


def test_each_line_that_is_compiled_is_of_the_same_line_of_the_source() -> None:
    text = '#include "a"\n#line 7 "f.py"\nfor (;;)\n  x;\n#line 9 "f.py"\ny;\n'
    assert located(text) == '#include "a"\n#line 7 "f.py"\nfor (;;)\n#line 7 "f.py"\n  x;\n#line 9 "f.py"\ny;\n'
