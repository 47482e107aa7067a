"""The stand-in for the driver as a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hopper.driver.fake import FakeDriver, fake


@pytest.fixture
def card() -> Iterator[FakeDriver]:
    """A driver with one imitated H100, whose launches run on the host twin."""
    found = fake()
    found.begin()
    found.run_on_twin()
    yield found
    found.end()
