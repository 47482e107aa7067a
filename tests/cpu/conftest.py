"""Fixtures of tests of the CPU compiler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm
import pytest

from palladio.call import staged
from palladio.cpu import engine, lower
from palladio.cpu.products import dot as products
from palladio.cpu.runtime import host, machine_code
from palladio.driver.cache import PreparedCache
from palladio.library.staging import forget_calls
from tests.cpu import tile_model
from tests.cpu.tile_model import TileRegisters
from tests.cpu.tiles import NATIVE, SAPPHIRE, Array, Lowered, Texts, compiled_by


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts of the kernels that a test compiles; no call is cached before it or after it."""
    staged.CALLS.clear()
    found: list[str] = []
    original = lower.lower_grid

    def lowered(*arguments: Any) -> lower.LoweredGrid:
        made = original(*arguments)
        found.append(made.text)
        return made

    monkeypatch.setattr("palladio.cpu.executor.lower_grid", lowered)
    yield found
    staged.CALLS.clear()


@pytest.fixture(params=["model", *NATIVE])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Texts]:
    """A processor with tile registers, the host's or a model, which multiplies small products on them too.

    No test may leave the registers in use.
    """
    monkeypatch.setenv("PALLADIO_CPU", "native")
    monkeypatch.setattr(products, "LEAST_DEPTH_ON_TILES", 0)
    monkeypatch.setattr(products, "LEAST_DEPTH_SPLIT", 0)
    monkeypatch.setattr(products, "LEAST_SUM_SPLIT", 0)
    monkeypatch.setattr(products, "LEAST_ROWS_OF_SUM", 0)
    monkeypatch.setattr(products, "LEAST_SPAN_SPLIT", 20)
    monkeypatch.setattr(products, "FEW_BEFORE_SPLIT", 32)
    if request.param == "native":
        yield compiled_by(monkeypatch, None)
        forget_calls()
        return
    monkeypatch.setenv("PALLADIO_CACHE", "0")  # the text has addresses of this process
    monkeypatch.setattr(machine_code, "_LEVEL", 0)  # better code takes longer to compile than it saves
    monkeypatch.setattr(machine_code, "_passes", lambda text: machine_code._Passes(0))
    registers = TileRegisters()
    with host.compiling_for(tile_model.processor()):
        yield compiled_by(monkeypatch, registers)
    forget_calls()
    assert not registers.faults and not registers.in_use


@pytest.fixture
def text_for_tiles(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The text of the first kernel that a call runs, as it is for a processor with tile registers."""
    texts: list[str] = []

    def note(text: str, **others: Any) -> None:
        texts.append(text)
        raise Lowered

    monkeypatch.setattr(staged, "CALLS", PreparedCache())
    monkeypatch.setattr(engine, "MachineCode", note)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()

    def lower(call: Any, *arrays: Array) -> str:
        with host.compiling_for(SAPPHIRE), pytest.raises(Lowered):
            call(*arrays)
        return texts[-1]

    return lower
