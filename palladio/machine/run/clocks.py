"""Vector clocks: the steps of each component that have happened before a point of the run.

A component takes steps in its own total order: it is a thread, or the asynchronous operations of one kind that a
thread has issued. Its epochs count up from 1; epoch 0 has always happened. Components are numbered inside their
cluster, so that a launch of thousands of blocks keeps short clocks: a dense array over the own cluster's components,
and arrays only for those foreign clusters from which it has acquired an epoch (through semaphores and atomics in global
memory).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Epochs = Any  # i64[components of one cluster]; entries past its end are 0

# Arrays are padded to a multiple of this, so that two clocks of a cluster almost always have the same length.
_STEP = 16


class Component(NamedTuple):
    """The `local`-th component of a cluster."""

    cluster: int
    local: int


class ComponentTable:
    """The components of one cluster, in order of creation, each with a label for messages."""

    def __init__(self, cluster: int) -> None:
        self.cluster = cluster
        self.labels: list[str] = []

    def __len__(self) -> int:
        return len(self.labels)

    def new(self, label: str) -> Component:
        """A new component; it is at epoch 0 in all existing clocks."""
        self.labels.append(label)
        return Component(self.cluster, len(self.labels) - 1)

    def label(self, component: Component) -> str:
        """The label of a component."""
        return self.labels[component.local]

    def clock(self) -> Clock:
        """A clock of this cluster with every component at epoch 0, and room for those that exist."""
        return Clock(self.cluster, len(self.labels))


class Clock:
    """For each component, the latest epoch that has happened before a point of the run.

    The own cluster's array is private and changes in place. Foreign arrays are immutable: clocks share them, and newer
    ones replace older ones. So after a barrier of the whole grid every clock points to the same
    arrays, and joining two of them compares identities.
    """

    # NumPy, not lists: for 30 components a join takes 0.3 us against 1.2 us with the fastest list, and runs more often
    # per access checked than it costs `covers` to read one element (0.05 us against 0.02 us).
    __slots__ = ("cluster", "foreign", "own")

    def __init__(self, cluster: int, components: int = 0) -> None:
        self.cluster = cluster
        self.own: Epochs = np.zeros(_room(components), np.int64)
        self.foreign: dict[int, Epochs] = {}

    def copy(self) -> Clock:
        """An independent copy."""
        twin = Clock.__new__(Clock)
        twin.cluster = self.cluster
        twin.own = self.own.copy()
        twin.foreign = self.foreign.copy() if self.foreign else {}
        return twin

    def join(self, other: Clock) -> None:
        """Join another clock: its past has now happened before this clock too."""
        if other is self:
            return
        own = other.own
        if other.cluster == self.cluster:
            if len(own) == len(self.own):
                np.maximum(self.own, own, out=self.own)
            else:
                self._join_own(own)
        else:
            self._join_foreign(other.cluster, own, shared=False)
        if other.foreign:
            for cluster, epochs in other.foreign.items():
                if cluster == self.cluster:
                    self._join_own(epochs)
                else:
                    self._join_foreign(cluster, epochs, shared=True)

    def covers(self, component: Component, epoch: int) -> bool:
        """True if this epoch of the component has happened before."""
        cluster, local = component
        if cluster == self.cluster:
            epochs = self.own
        else:
            found = self.foreign.get(cluster)
            if found is None:
                return epoch <= 0
            epochs = found
        if local < len(epochs):
            return bool(epochs.item(local) >= epoch)
        return epoch <= 0

    def epoch(self, component: Component) -> int:
        """The latest epoch of the component that has happened before."""
        cluster, local = component
        epochs = self.own if cluster == self.cluster else self.foreign.get(cluster, ())
        return int(epochs[local]) if local < len(epochs) else 0

    def advance(self, component: Component) -> int:
        """The component takes a step: advance to its next epoch, and return it."""
        cluster, local = component
        if cluster == self.cluster and local < len(self.own):
            epoch = int(self.own.item(local)) + 1
            self.own[local] = epoch
            return epoch
        epoch = self.epoch(component) + 1
        self.set(component, epoch)
        return epoch

    def set(self, component: Component, epoch: int) -> None:
        """Raise the component to this epoch; a clock never decreases."""
        cluster, local = component
        if cluster == self.cluster:
            if local >= len(self.own):
                self.own = _grown(self.own, local + 1)
            if self.own.item(local) < epoch:
                self.own[local] = epoch
        elif not self.covers(component, epoch):
            epochs = _grown(self.foreign.get(cluster, np.zeros(0, np.int64)), local + 1)
            epochs[local] = epoch
            self.foreign[cluster] = epochs

    def __str__(self) -> str:
        known = [(self.cluster, self.own), *sorted(self.foreign.items(), key=lambda item: item[0])]
        parts = (f"{cluster}.{local}:{epochs[local]}" for cluster, epochs in known for local in np.flatnonzero(epochs))
        return f"<{' '.join(parts)}>"

    def _join_own(self, epochs: Epochs) -> None:
        count = len(epochs)
        if count > len(self.own):
            self.own = _grown(self.own, count)
        part = self.own[:count]
        np.maximum(part, epochs, out=part)

    def _join_foreign(self, cluster: int, epochs: Epochs, shared: bool) -> None:
        """Join a foreign cluster's array; it may be kept without a copy only if it is immutable (`shared`)."""
        mine = self.foreign.get(cluster)
        if mine is epochs:
            return
        if mine is None:
            self.foreign[cluster] = epochs if shared else epochs.copy()
            return
        if len(mine) < len(epochs):
            mine = _grown(mine, len(epochs))
        elif len(epochs) < len(mine):
            epochs, shared = _grown(epochs, len(mine)), True
        joined = np.maximum(mine, epochs)
        # An array equal to the joined one is kept, since other clocks share it. Bytes compare ten times faster than
        # arrays of this size.
        found = joined.tobytes()
        if shared and found == epochs.tobytes():
            joined = epochs
        elif found == mine.tobytes():
            joined = mine
        self.foreign[cluster] = joined


def _room(components: int) -> int:
    return max(1, -(-components // _STEP)) * _STEP


def _grown(epochs: Epochs, components: int) -> Epochs:
    """A copy with room for this many components."""
    grown = np.zeros(max(_room(components), len(epochs)), np.int64)
    grown[: len(epochs)] = epochs
    return grown
