"""Random kernels over grids whose steps share scratch and outputs, compiled by any number of threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio.base.errors import NotCompiledWarning

BLOCK = (2, 4)
COUNT = 4
"""Blocks of an array along each axis: more than any axis of a grid has steps."""

LARGEST = 500
"""Sums stay small integers, so that their order does not matter."""

Statement = Callable[["Step"], None]


class Step:
    """The references of one step."""

    def __init__(self, refs: Sequence[Any], outputs: int) -> None:
        self.inputs, self.outputs, self.scratch = refs[:2], refs[2 : 2 + outputs], refs[2 + outputs :]


def small(value: Any) -> Any:
    return jnp.where(jnp.abs(value) < LARGEST, value, jnp.ones_like(value))


class Kernel:
    """A random kernel. Scratch is mostly stored first, under conditions of all kinds, and then used in any way."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.sizes = tuple(map(int, rng.integers(1, 4, self.number(2, 4))))
        self.outputs, self.scratch = self.number(1, 3), self.number(1, 3)
        axes = rng.permutation(len(self.sizes)).tolist()
        self.own = axes[: self.number(1, 3)]
        self.maps = [self.axes(self.number(0, 3)) for _ in range(self.outputs)]
        self.input_maps = [rng.integers(0, len(self.sizes), 2).tolist() for _ in range(2)]
        self.program = [self.begin(n) for n in range(self.scratch)]
        self.program += [self.statement(2) for _ in range(self.number(1, 6))]
        self.program += [self.end(n) for n in range(self.outputs)]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def axes(self, kind: int) -> list[int | None]:
        """The grid axes that number the blocks of an output; None for the first block only."""
        found: list[int | None] = [*self.own] if kind else self.rng.permutation(len(self.sizes)).tolist()[:2]
        return (found if len(found) == 2 else [*found, None] if kind == 1 else [None, *found])[:2]

    def run(self, executor: str) -> Any:
        rng = np.random.default_rng(0)
        shape = tuple(size * COUNT for size in BLOCK)

        def spec(axes: Sequence[int | None]) -> pl.BlockSpec:
            return pl.BlockSpec(BLOCK, lambda *ids: tuple(0 if axis is None else ids[axis] for axis in axes))

        def body(*refs: Any) -> None:
            for statement in self.program:
                statement(Step(refs, self.outputs))

        call = pl.pallas_call(
            body,
            [pl.ShapeDtypeStruct(shape, np.float32)] * self.outputs,
            grid=self.sizes,
            in_specs=[spec(axes) for axes in self.input_maps],
            out_specs=[spec(axes) for axes in self.maps],
            scratch_shapes=[pltpu.VMEM(BLOCK, np.float32)] * self.scratch,
        )
        with pl.executor(executor):
            return call(*(rng.integers(-4, 5, shape).astype(np.float32) for _ in range(2)))

    # What the program is made of.

    def begin(self, number: int) -> Statement:
        value, always, condition = self.value(), self.number(0, 3) == 0, self.condition(self.number(0, 3))

        def store(step: Step) -> None:
            step.scratch[number][...] = value(step)

        return store if always else lambda step: pl.when(condition())(lambda: store(step))

    def end(self, number: int) -> Statement:
        source = self.number(0, self.scratch)

        def statement(step: Step) -> None:
            step.outputs[number][...] = step.scratch[source][...]

        return statement

    def statement(self, depth: int) -> Statement:
        kind, value = self.number(0, 12), self.value()
        out, scratch = self.number(0, self.outputs), self.number(0, self.scratch)
        inner = [self.statement(depth - 1) for _ in range(self.number(1, 3))] if depth and kind >= 8 else []
        condition, count = self.condition(self.number(0, 3)), self.number(0, 3)

        def statement(step: Step) -> None:
            def follow() -> None:
                for each in inner:
                    each(step)

            target = step.outputs[out] if kind in (5, 6) else step.scratch[scratch]
            if kind == 7:
                target[0] = value(step)[1]
            elif kind == 8:
                pl.loop(0, count)(lambda _: follow())
            elif kind > 8 and inner:
                pl.when(condition())(follow)
            else:
                target[...] = small(target[...] + value(step)) if kind % 2 else value(step)

        return statement

    def value(self) -> Callable[[Step], Any]:
        kind, which, axis = self.number(0, 5), self.number(0, 2), self.number(0, len(self.sizes))

        def value(step: Step) -> Any:
            if kind == 0:
                return step.scratch[which % self.scratch][...]
            if kind == 1:
                return step.outputs[which % self.outputs][...]
            return small(step.inputs[which][...] + pl.program_id(axis).astype(jnp.float32))

        return value

    def condition(self, kind: int) -> Callable[[], Any]:
        """In the first step of a task, at one place along an axis, or a mixture of two such places."""
        others = [axis for axis in range(len(self.sizes)) if axis not in self.own]
        (one, at), (two, there) = ((self.number(0, len(self.sizes)), self.number(0, 2)) for _ in range(2))

        def condition() -> Any:
            if kind == 0:
                found: Any = jnp.asarray(True)
                for axis in others:
                    found = found & (pl.program_id(axis) == 0)
                return found
            first = pl.program_id(one) == at
            return first if kind == 1 else first | (pl.program_id(two) == there)

        return condition


@pytest.mark.parametrize("seed", range(32))
def test_a_compiled_grid_gives_the_same_results(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        found = Kernel(seed).run("cpu")
    for one, other in zip(found, Kernel(seed).run("reference"), strict=True):
        np.testing.assert_array_equal(one, other)
