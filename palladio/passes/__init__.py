"""Floor 6: passes from programs to programs, one in each module.

`ALL_PASSES` names them in the order in which an executor would run them; `run_passes` runs some. To add one, write a
module with one `Pass(...)` record, list it here, and add it to the pipelines that need it.
"""

from __future__ import annotations

from palladio.passes.common_subexpressions import merge_common_subexpressions
from palladio.passes.dead_code import remove_dead_code
from palladio.passes.discharge import discharge, discharge_program
from palladio.passes.pipeline import ANY, VALUES, Form, Pass, run_passes
from palladio.passes.simplify import simplify

ALL_PASSES: tuple[Pass, ...] = (discharge, simplify, merge_common_subexpressions, remove_dead_code)
PASSES: dict[str, Pass] = {each.name: each for each in ALL_PASSES}

__all__ = [
    "ALL_PASSES",
    "ANY",
    "PASSES",
    "VALUES",
    "Form",
    "Pass",
    "discharge",
    "discharge_program",
    "merge_common_subexpressions",
    "remove_dead_code",
    "run_passes",
    "simplify",
]
