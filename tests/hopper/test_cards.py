"""The number of multiprocessors of the card, and its name, as the driver reports them."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from palladio.driver import cards
from palladio.types.device import H100_SXM


class Driver:
    """A CUDA driver with one device of some attributes, or none."""

    def __init__(self, attributes: dict[int, int] | None) -> None:
        self.attributes = attributes

    def cuInit(self, flags: int) -> int:
        return 0 if self.attributes else 100

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        return 0 if ordinal == 0 else 101

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = (self.attributes or {})[attribute]
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = b"NVIDIA H200"
        return 0


@pytest.mark.parametrize(
    ("attributes", "count"),
    [({75: 9, 16: 114}, 114), ({75: 8, 16: 108}, None), (None, None)],
    ids=["H100 PCIe", "A100", "none"],
)
def test_a_hopper_card_tells_its_multiprocessors(attributes: dict[int, int] | None, count: int | None) -> None:
    assert cards.queried_multiprocessors(Driver(attributes)) == count


def test_only_a_hopper_card_has_a_name() -> None:
    assert cards.queried_name(Driver({75: 9, 16: 132})) == "NVIDIA H200"
    assert cards.queried_name(Driver({75: 8, 16: 108})) is cards.queried_name(Driver(None)) is None


def test_without_a_driver_there_are_those_of_an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert cards.multiprocessors.__wrapped__() == H100_SXM.multiprocessors
    assert cards.card_name.__wrapped__() is None
