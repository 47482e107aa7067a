"""The stand-in for the driver as a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from palladio.call.staged import CALLS
from palladio.hopper import compile as nvrtc
from palladio.hopper.compile import Cubin
from palladio.hopper.launch.calls import KernelCall
from palladio.hopper.lowered import Lowered
from palladio.library.hopper import kept as kept_calls
from tests.hopper.driver.fake import FakeDriver, fake
from tests.hopper.driver.stand_ins import Torch

_CUBINS: dict[str, Cubin] = {}


def without_body(lowered: Lowered) -> Lowered:
    """A kernel that returns at once, as the host twin runs what is launched, and that has other code than any other."""
    head, begin, body = lowered.text.partition("PAL_KERNEL")
    name, brace, body = body.partition("{")
    mark = f'extern "C" __device__ char of_{nvrtc.key(lowered)};'
    return replace(lowered, text=f"{head}{begin}{name}{brace} return;{body}\n{mark}\n")


@pytest.fixture(autouse=True, scope="module")
def texts_compiled_once() -> Iterator[None]:
    """Compile what the driver is told of a kernel, once for all tests of a module; many begin with an empty cache."""
    compiled = nvrtc._compiled

    def once(lowered: Lowered) -> Cubin:
        key = nvrtc.key(lowered)
        if key not in _CUBINS:
            _CUBINS[key] = compiled(without_body(lowered))
        return _CUBINS[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "_compiled", once)
        yield


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """Not here, where it would be for each number of rows: tests of what these kernels compute do it."""


@pytest.fixture
def card() -> Iterator[FakeDriver]:
    """A driver with one imitated H100, whose launches run on the host twin."""
    found = fake()
    found.begin()
    found.run_on_twin()
    yield found
    found.end()


@pytest.fixture
def known_kernels(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The imitated driver finds what it is to run among the kernels that were loaded."""
    on = KernelCall.on

    def noted(call: KernelCall, device: int) -> Any:
        found = on(call, device)
        if found not in card.kernels:
            card.kernels.append(found)
        return found

    monkeypatch.setattr(KernelCall, "on", noted)
    CALLS.clear()
    kept_calls._KEPT.clear()


@pytest.fixture
def cuda(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(card, monkeypatch)
