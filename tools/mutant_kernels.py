"""The kernels that `tools.mutants` breaks: those of the library, and pipelines as users write them.

Inputs and configurations are small, and chosen so that every synchronising line runs: more steps than stages, several
tiles for each block, ragged edges where a kernel has a separate path for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from palladio import lax
from palladio.library import hopper
from tools.mutant_idioms import IDIOMS

Array = np.ndarray[Any, Any]
Ref = Any

BLOCK = 16
HALF = BLOCK // 2


@dataclass(frozen=True)
class Kernel:
    """A kernel on small inputs.

    Fields:
        run: makes the call.
        expected: its result in float64.
        hasty: calls of the same kernel, each with one `delay_release` removed, by the name of the input.
    """

    name: str
    run: Callable[[], Any]
    expected: Array
    hasty: Mapping[str, Callable[[], Any]] = field(default_factory=dict)


def _halves(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float16)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


@cache
def kernels() -> tuple[Kernel, ...]:
    """All kernels."""
    return (*_products(), *_grouped(), *_attention(), *_pipelines(), *_idioms())


def _idioms() -> list[Kernel]:
    return [Kernel(name, make(), np.asarray(expected)) for name, (make, expected) in IDIOMS.items()]


def _products() -> list[Kernel]:
    rng = np.random.default_rng(0)
    a, b = _halves(rng, 32, 80), _halves(rng, 80, 32)
    small = hopper.MatmulConfig(tile_m=16, tile_n=16, tile_k=16, stages=3, epilogue_n=4, blocks=2)

    cluster = replace(small, cluster="m")
    return [
        Kernel(name, partial(hopper.matmul, a, b, config=config), _wide(a) @ _wide(b))
        for name, config in (("matmul", small), ("matmul, cluster of 2", cluster))
    ]


def _grouped() -> list[Kernel]:
    rng = np.random.default_rng(1)
    config = hopper.MatmulConfig(tile_m=16, tile_n=16, tile_k=16, stages=3, epilogue_n=4, blocks=2)
    sizes = np.array([13, 0, 19], np.int32)
    ends = np.cumsum(sizes)
    rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    a, weights = _halves(rng, 32, 80), _halves(rng, 3, 80, 32)
    products = [_wide(a)[part] @ _wide(weight) for part, weight in zip(rows, weights, strict=True)]
    many = np.array([70, 0, 35], np.int32)
    ends = np.cumsum(many)
    columns = [slice(end - size, end) for end, size in zip(ends, many, strict=True)]
    lhs, rhs = _halves(rng, 16, 105), _halves(rng, 105, 32)
    gradients = [_wide(lhs)[:, part] @ _wide(rhs)[part] for part in columns]
    return [
        Kernel("gmm", lambda: hopper.gmm(a, weights, sizes, config=config), np.concatenate(products)),
        Kernel("tgmm", lambda: hopper.tgmm(lhs, rhs, many, config=config), np.stack(gradients)),
    ]


def _attention() -> list[Kernel]:
    rng = np.random.default_rng(2)
    q, k, v = _halves(rng, 1, 32, 16), _halves(rng, 1, 36, 16), _halves(rng, 1, 36, 16)
    configs = {
        False: hopper.AttentionConfig(block_q=8, block_kv=8, stages=3),
        # Several steps of each warpgroup are masked, and copies overwrite the operands of the first of them.
        True: hopper.AttentionConfig(block_q=16, block_kv=4, stages=3),
    }

    def expected(causal: bool) -> Array:
        scores = _wide(q) @ _wide(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if causal:
            scores = np.where(np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(weights / weights.sum(-1, keepdims=True) @ _wide(v))

    return [
        Kernel(
            f"attention{', causal' if causal else ''}",
            partial(hopper.attention, q, k, v, causal=causal, config=configs[causal]),
            expected(causal),
        )
        for causal in (False, True)
    ]


# Pipelines whose products stay in flight for a step.


def _pipelines() -> list[Kernel]:
    rng = np.random.default_rng(3)
    a, b = _halves(rng, BLOCK, 6 * BLOCK), _halves(rng, 6 * BLOCK, 2 * BLOCK)
    expected = _wide(a) @ _wide(b)
    return [
        Kernel(
            name,
            lambda make=make: make((1, 1))(a, b),  # type: ignore[misc]
            expected,
            {
                operand: lambda make=make, delays=delays: make(delays)(a, b)  # type: ignore[misc]
                for operand, delays in (("a", (0, 1)), ("b", (1, 0)))
            },
        )
        for name, make in (("emit_pipeline", one_thread), ("emit_pipeline_warp_specialized", several_threads))
    ]


def _specs(delays: tuple[int, int], column: Any) -> list[Any]:
    return [
        plgpu.BlockSpec((BLOCK, BLOCK), lambda step: (0, step), delay_release=delays[0]),
        plgpu.BlockSpec((BLOCK, BLOCK), lambda step: (step, column), delay_release=delays[1]),
    ]


def _multiply(_: Any, a_block: Ref, b_block: Ref, acc: Ref) -> Ref:
    plgpu.wgmma(acc, a_block, b_block)
    plgpu.wgmma_wait(1)
    return acc


def one_thread(delays: tuple[int, int]) -> Any:
    """A product; each block computes some columns, and writes them row by row in a second pipeline."""

    def body(a: Ref, b: Ref, out: Ref) -> None:
        column = pl.axis_index("column")

        def scoped(acc: Ref) -> Any:
            plgpu.emit_pipeline(
                _multiply,
                grid=(a.shape[1] // BLOCK,),
                in_specs=_specs(delays, column),
                max_concurrent_steps=3,
                init_carry=acc,
            )(a, b)
            return acc[...].astype(np.float32)

        product = pl.run_scoped(scoped, plgpu.ACC((BLOCK, BLOCK)))

        def write(indices: Any, out_block: Ref) -> None:
            out_block[...] = lax.dynamic_slice(product, (indices[0] * HALF // 2, 0), (HALF // 2, BLOCK))

        plgpu.emit_pipeline(
            write,
            grid=(2 * BLOCK // HALF,),
            out_specs=[plgpu.BlockSpec((HALF // 2, BLOCK), lambda step: (step, column))],
            max_concurrent_steps=2,
        )(out)

    return plgpu.kernel(body, pl.ShapeDtypeStruct((BLOCK, 2 * BLOCK), np.float32), grid=(2,), grid_names=("column",))


def several_threads(delays: tuple[int, int]) -> Any:
    """The same product by two computing warpgroups, one for each half of a tile, and a copying one."""

    def body(a: Ref, b: Ref, out: Ref) -> None:
        column, group = pl.axis_index("column"), pl.axis_index("group")
        mine = pl.ds(group * HALF, HALF)

        def multiply(_: Any, a_block: Ref, b_block: Ref, acc: Ref) -> Ref:
            return _multiply(_, a_block.at[mine, :], b_block, acc)

        def context(pipeline: Any) -> None:
            def scoped(acc: Ref) -> None:
                pipeline(acc)
                out.at[mine, pl.ds(column * BLOCK, BLOCK)][...] = acc[...].astype(np.float32)

            pl.run_scoped(scoped, plgpu.ACC((HALF, BLOCK)))

        plgpu.emit_pipeline_warp_specialized(
            multiply,
            grid=(a.shape[1] // BLOCK,),
            memory_registers=40,
            in_specs=_specs(delays, column),
            max_concurrent_steps=3,
            wg_axis="group",
            num_compute_wgs=2,
            compute_context=context,
        )(a, b)

    return plgpu.kernel(
        body,
        pl.ShapeDtypeStruct((BLOCK, 2 * BLOCK), np.float32),
        grid=(2,),
        grid_names=("column",),
        num_threads=3,
        thread_name="group",
    )
