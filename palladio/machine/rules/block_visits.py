"""The blocks that the steps of a grid visit, checked by the rules of Pallas' interpreter for TPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palladio.base.errors import PalladioValueError
from palladio.ir.core import Program
from palladio.machine.check.findings import Participant
from palladio.machine.run.threads import Thread
from palladio.ops.grid import Blocked, Element, Grid, Squeezed
from palladio.types.types import Shape

Point = tuple[int, ...]


class BlockVisits:
    """Tracks one run of a grid.

    Args:
        shapes: the shapes of the inputs.
    """

    def __init__(self, thread: Thread, grid: Grid, kernel: Program, shapes: Sequence[Shape]) -> None:
        self.thread = thread
        self.blocks = (*grid.inputs, *grid.outputs)
        self.shapes = (*shapes, *(type.shape for type in grid.output_types))
        self.inputs = len(grid.inputs)
        self.aliased = {output for _, output in grid.aliases}
        self.location = kernel.location
        first = len(grid.sizes) + grid.dynamic + grid.scalars
        self.names = [var.hint or f"block {n}" for n, var in enumerate(kernel.inputs[first : first + len(self.blocks)])]
        self._visited: dict[int, dict[Point, Point]] = {}

    def at(self, index_map: Program, point: Point, found: Sequence[Any]) -> None:
        """A step of the grid visits the blocks that an index map gives.

        Raises:
            CheckError: a block outside its array.
            PalladioValueError: a revisited block of an output.
        """
        for number, block in enumerate(self.blocks):
            if block.index_map is index_map and block.contiguous:
                indices = tuple(map(int, found))
                self._inside(number, point, indices)
                if number >= self.inputs and number - self.inputs not in self.aliased:
                    self._revisits(number, point, indices)

    def _inside(self, number: int, point: Point, indices: Point) -> None:
        checker = self.thread.checker
        dims = zip(self.blocks[number].dims, indices, self.shapes[number], strict=True)
        if checker is None or not checker.accesses.checks_bounds or all(_starts_inside(*each) for each in dims):
            return
        kind = "input" if number < self.inputs else "output"
        checker.found.report(
            "out-of-bounds",
            f"block {indices} of {self.names[number]} lies outside of its array, {self.shapes[number]}",
            [Participant(self.thread.title, f"goes to it in step {point} of the grid", self.location)],
            jax=f'Out-of-bounds block index {indices} for {kind} "{self.names[number]}" in iteration {point}',
        )

    def _revisits(self, number: int, point: Point, indices: Point) -> None:
        visited = self._visited.setdefault(number, {})
        last = next(reversed(visited), None)
        if indices != last and indices in visited:
            output = number - self.inputs
            raise PalladioValueError(
                "a grid visits a block of an output again after it has left it",
                argument=f"out_specs[{output}]",
                got=f"block {indices} of {self.names[number]} in steps {visited[indices]} and {point}",
                hint="let the axes that visit one block be the last ones of the grid",
                jax=f"Revisited block {indices} of output {output} in iteration {point}",
                location=self.location,
            )
        visited[indices] = point


def _starts_inside(dim: Any, index: int, extent: int) -> bool:
    """True if a block begins inside its axis."""
    match dim:
        case Blocked(size):
            return 0 <= index * size < max(extent, 1)
        case Element(_, (before, after)):
            return 0 <= index < before + extent + after
        case Squeezed():
            return 0 <= index < extent
    return True
