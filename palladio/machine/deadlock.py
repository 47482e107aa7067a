"""Explaining a deadlock: who waits for what, and who could have ended the wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palladio.base.errors import PalladioValueError

if TYPE_CHECKING:
    from palladio.machine.machine import Machine


def deadlock(machine: Machine) -> None:
    """Report that nothing can go on."""
    stuck = [agent for agent in machine.agents if not agent.done]
    waits = "; ".join(f"{agent} waits at a {agent.waiting.kind}" for agent in stuck[:8] if agent.waiting)
    raise PalladioValueError("deadlock: every thread waits, and nothing is under way", got=waits)
