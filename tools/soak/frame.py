"""Counts of a part of the soak, and the state that a part works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Counts:
    """Numbers of one part.

    Fields:
        calls: calls of kernels, including interrupted ones.
        interrupts: interrupts that a call raised.
        faults: unexpected exceptions, and processes that crashed or hung.
        wrong: results that differ.
    """

    calls: int = 0
    interrupts: int = 0
    faults: int = 0
    wrong: int = 0

    def __add__(self, other: Counts) -> Counts:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Counts(*(mine + its for mine, its in pairs))


@dataclass
class Soak:
    """One part while it runs.

    Fields:
        seconds: the time limit.
        most: the maximum number of rounds.
        rng: makes every random choice, so that a seed reproduces them.
        notes: descriptions of the first failures.
    """

    seconds: float
    most: float
    rng: np.random.Generator
    counts: Counts = field(default_factory=Counts)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.seconds

    def rounds(self) -> Iterator[int]:
        """The numbers of rounds, until the maximum or the time limit."""
        number = 0
        while number < self.most and time.monotonic() < self.end:
            yield number
            number += 1

    def check(self, subject: str, found: Any, expected: Any) -> None:
        """Count a call, and check that its result is bitwise equal."""
        self.counts.calls += 1
        found, expected = np.asarray(found), np.asarray(expected)
        if found.dtype != expected.dtype or found.shape != expected.shape or found.tobytes() != expected.tobytes():
            self.counts.wrong += 1
            self.note(f"{subject}: {np.sum(found != expected)} of {expected.size} elements differ")

    def near(self, subject: str, found: Any, expected: Any, tolerance: float) -> None:
        """Count a call, and check the relative error norm of its result."""
        self.counts.calls += 1
        found, expected = np.asarray(found), np.asarray(expected)
        error = np.linalg.norm(found.astype(np.float64) - expected) if found.shape == expected.shape else np.inf
        if not error <= tolerance * np.linalg.norm(expected):  # NaN is not
            self.counts.wrong += 1
            self.note(f"{subject}: an error of {error / np.linalg.norm(expected)}, at most {tolerance} is expected")

    def note(self, text: str) -> None:
        """Record a failure."""
        if len(self.notes) < 10:
            self.notes.append(text)

    @contextmanager
    def faults(self, subject: str) -> Iterator[None]:
        """Count an exception that the block raises."""
        try:
            yield
        except Exception as error:
            self.counts.faults += 1
            self.note(f"{subject}: {type(error).__name__}: {error}")


Part = Callable[[Soak], None]
