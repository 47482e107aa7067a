"""Has the site describe the package's dataclasses: Griffe, which reads sources, knows the standard library's alone."""

from __future__ import annotations

from typing import Any

import griffe

OURS, KNOWN = "palladio.base.dataclass.dataclass", "dataclasses.dataclass"


class Dataclasses(griffe.Extension):
    """Takes `palladio.base.dataclass` for the standard library's decorator, which it is for all that a page shows."""

    def on_alias_instance(self, *, alias: griffe.Alias, **_: Any) -> None:
        """Called for each import."""
        if alias.target_path == OURS:
            alias.target_path = KNOWN
