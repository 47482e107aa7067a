"""The stand-in for the driver as a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from palladio.call.staged import CALLS
from palladio.hopper.launch.calls import KernelCall
from palladio.library.hopper import kept as kept_calls
from tests.hopper.driver.fake import FakeDriver, fake
from tests.hopper.driver.stand_ins import Torch


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
