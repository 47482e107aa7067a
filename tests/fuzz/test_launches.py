"""Random kernels of several threads compiled for the CPU, against the machine of the definition."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.base.errors import NotCompiledWarning

INT = np.int32
WIDE = 8


class Kernel:
    """A random kernel: phases, each of which changes what the threads of a block share, and in between all meet."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.threads = int(self.rng.integers(1, 4))
        self.blocks = int(self.rng.choice([1, 2, 3]))
        self.clusters = int(self.rng.integers(1, 4))
        kinds = [self.neighbours, self.loop, self.copy, self.peers, self.warps, self.scope, self.one, self.counted]
        count = int(self.rng.integers(2, 6))
        self.phases = [kinds[n]() for n in self.rng.integers(0, len(kinds), count)]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def __call__(self, x: Any, o: Any, s: Any) -> None:
        x_ref, s["cluster"], s["me"], s["block"] = x, pl.axis_index("x"), pl.axis_index("wg"), pl.axis_index("c")
        s["tile"][s["me"]] = x_ref[s["cluster"], s["me"]] + s["block"]
        self.meet(s)
        for number, phase in enumerate(self.phases):
            phase(x_ref, s)
            self.meet(s)
            o[number, s["cluster"], s["block"], s["me"]] = s["tile"][s["me"]]
            self.meet(s)

    def meet(self, s: Any) -> None:
        """All threads of the cluster."""
        plgpu.barrier_arrive_and_wait(s["all"])

    def run(self, executor: str) -> Any:
        data = np.random.default_rng(1).integers(-99, 99, (self.clusters, self.threads, WIDE)).astype(INT)
        shape = (len(self.phases), self.clusters, self.blocks, self.threads, WIDE)
        scratch = {
            "tile": plgpu.SMEM((self.threads, WIDE), INT),
            "other": plgpu.SMEM((self.threads, WIDE), INT),
            "all": plgpu.ClusterBarrier(collective_axes="c", num_arrivals=self.threads),
            "full": plgpu.Barrier(),
            "warps": plgpu.Barrier(num_arrivals=4, num_barriers=self.threads),
        }

        def body(x: Any, o: Any, **s: Any) -> None:
            self(x, o, s)

        call = plgpu.kernel(
            body,
            pl.ShapeDtypeStruct(shape, INT),
            grid=(self.clusters,),
            grid_names=("x",),
            cluster=(self.blocks,),
            cluster_names=("c",),
            num_threads=self.threads,
            thread_name="wg",
            scratch_types=scratch,
            interpret=executor,
        )
        return np.asarray(call(data))

    # Kinds of phases.

    def neighbours(self) -> Callable[..., None]:
        step, factor = self.number(0, 3), self.number(-3, 4)

        def phase(x: Any, s: Any) -> None:
            value = s["tile"][(s["me"] + step) % self.threads] * factor + s["block"]
            self.meet(s)
            s["tile"][s["me"]] = value + s["tile"][s["me"]]

        return phase

    def loop(self) -> Callable[..., None]:
        count, inner = self.number(0, 4), self.neighbours()

        def phase(x: Any, s: Any) -> None:
            @pl.loop(0, count)
            def _(step: Any) -> None:
                inner(x, s)
                self.meet(s)
                s["tile"][s["me"], step] = step + s["me"]
                self.meet(s)

        return phase

    def copy(self) -> Callable[..., None]:
        who, start = self.number(0, self.threads), self.number(-2, 3)
        shared = bool(self.number(0, 2))

        def phase(x: Any, s: Any) -> None:
            at = s["cluster"] + start if not shared else s["cluster"] * 1

            @pl.when(s["me"] == who)
            def _() -> None:
                source = x.at[pl.ds(at, 1), :, :].at[0]
                plgpu.copy_gmem_to_smem(source, s["other"], s["full"], collective_axes="c" if shared else None)

            plgpu.barrier_wait(s["full"])
            s["tile"][s["me"]] = s["tile"][s["me"]] ^ s["other"][self.threads - 1 - s["me"]]

        return phase

    def peers(self) -> Callable[..., None]:
        step = self.number(0, 4)

        def phase(x: Any, s: Any) -> None:
            there = plgpu.cluster_ref(s["tile"], {"c": (s["block"] + step) % self.blocks})
            value = there[s["me"]]
            self.meet(s)
            s["tile"][s["me"]] = value - s["tile"][s["me"]]

        return phase

    def warps(self) -> Callable[..., None]:
        count, step = self.number(1, 4), self.number(0, 4)

        def phase(x: Any, s: Any) -> None:
            me = s["me"]

            @plgpu.warp_map
            def _(warp: Any) -> None:
                @pl.loop(0, count)
                def _(turn: Any) -> None:
                    mine = s["tile"][me, pl.ds(((warp + step) % 4) * 2, 2)]
                    plgpu.barrier_arrive_and_wait(s["warps"].at[me])
                    s["tile"][me, pl.ds(warp * 2, 2)] = mine * 2 + turn + warp
                    plgpu.barrier_arrive_and_wait(s["warps"].at[me])

        return phase

    def scope(self) -> Callable[..., None]:
        inner, count = self.number(0, 3), self.number(1, 4)

        def phase(x: Any, s: Any) -> None:
            def body(tile: Any, met: Any) -> None:
                tile[s["me"]] = s["tile"][s["me"]] + 1
                plgpu.barrier_arrive_and_wait(met)
                s["tile"][s["me"]] = tile[(s["me"] + inner) % self.threads] * 3

            @pl.loop(0, count)
            def _(step: Any) -> None:
                kinds = plgpu.SMEM((self.threads, WIDE), INT), plgpu.Barrier(num_arrivals=self.threads)
                pl.run_scoped(body, *kinds, collective_axes="wg")

        return phase

    def one(self) -> Callable[..., None]:
        who, place = self.number(0, self.threads), self.number(0, WIDE)

        def phase(x: Any, s: Any) -> None:
            @pl.when(s["me"] == who)
            def _() -> None:
                s["tile"][:, place] = jnp.full((self.threads,), place, INT) + s["tile"][who, 0]

        return phase

    def counted(self) -> Callable[..., None]:
        limit = self.number(1, 5)

        def phase(x: Any, s: Any) -> None:
            def goes_on(n: Any) -> Any:
                return n < limit + s["me"]

            def step(n: Any) -> Any:
                s["tile"][s["me"], n % WIDE] = n
                return n + 1

            pl.while_loop(goes_on, step, jnp.asarray(0, INT))

        return phase


@pytest.mark.parametrize("seed", range(16))
def test_a_compiled_launch_gives_the_same_results(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotCompiledWarning)
        found = Kernel(seed).run("cpu")
    np.testing.assert_array_equal(found, Kernel(seed).run("reference"))
