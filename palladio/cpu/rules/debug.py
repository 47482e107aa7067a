"""Printing and checking on the CPU: Python does it, on copies of the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.cpu.callbacks import Callback
from palladio.cpu.emit import V
from palladio.cpu.scope import Rule, Scope
from palladio.cpu.tiles import Tile, write
from palladio.ir.op import Op
from palladio.ops import debug


def _asks(op: Op) -> Rule:
    """A rule that has Python do the operation."""

    def rule(scope: Scope, *tiles: Tile, **params: Any) -> Sequence[Tile]:
        e, function = scope.e, scope.function
        addresses: list[V] = []
        for tile in tiles:
            target = scope.arena.buffer(e, tile.shape, tile.dtype)
            write(e, tile, target)
            addresses.append(e.value("i64", f"ptrtoint {target.base} to i64"))
        location = None if function.eqn is None else function.eqn.location
        function.callbacks.append(Callback(op, [tile.type for tile in tiles], params, location))
        function.ask(len(function.callbacks) - 1, addresses)
        return ()

    return rule


RULES: dict[str, Rule] = {op.name: _asks(op) for op in (debug.debug_print, debug.debug_check)}
