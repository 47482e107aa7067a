"""The generator of `palladio.tpu`: the same numbers on every executor, new ones with each draw and each seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import compat
from palladio.base.threefry import key_of

jax = pytest.importorskip("jax")

with compat.jax():
    import jax as ours

SHAPE = (8, 16)
EXECUTORS = ("reference", "cpu", "simulator")


def drawn(*seeds: Any, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    def kernel(out: Any) -> None:
        pltpu.prng_seed(*seeds)
        out[...] = pltpu.prng_random_bits(SHAPE)

    found: np.ndarray[Any, Any] = pl.pallas_call(kernel, pl.ShapeDtypeStruct(SHAPE, dtype))()
    return found


def test_a_seed_decides_the_bits() -> None:
    assert np.array_equal(drawn(3), drawn(3))
    many = np.concatenate([drawn(3), drawn(4), drawn(3, 4), drawn(4, 3), drawn(-1)])
    assert len(np.unique(many)) == many.size


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", EXECUTORS)
def test_each_draw_is_a_new_one_in_loops_and_on_grids(executor: str) -> None:
    def kernel(out: Any) -> None:
        pltpu.prng_seed(7, pl.program_id(0))

        @pl.loop(0, 3)
        def draw(step: Any) -> None:
            out[0, step] = pltpu.prng_random_bits(SHAPE)

    def run() -> Any:
        shape = (4, 3, *SHAPE)
        block = pl.BlockSpec((1, *shape[1:]), lambda i: (i, 0, 0, 0))
        return pl.pallas_call(kernel, pl.ShapeDtypeStruct(shape, np.int32), grid=(4,), out_specs=block)()

    with pl.executor(executor):
        found = run()
    assert len(np.unique(found)) == found.size
    with pl.executor("reference"):
        assert np.array_equal(found, run())


def test_a_new_seed_in_an_inner_function_holds_for_the_outer_one() -> None:
    def kernel(out: Any) -> None:
        pltpu.prng_seed(0)
        out[0] = pltpu.prng_random_bits(SHAPE)
        pl.when(pl.program_id(0) == 0)(lambda: pltpu.prng_seed(0))
        out[1] = pltpu.prng_random_bits(SHAPE)

    first, second = pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, *SHAPE), np.int32), grid=(1,))()
    assert np.array_equal(first, second)


def test_the_distributions() -> None:
    def kernel(uniform: Any, normal: Any, chance: Any, byte: Any) -> None:
        pltpu.prng_seed(11)
        uniform[...] = pltpu.stateful_uniform(uniform.shape, minval=2.0, maxval=3.0)
        normal[...] = pltpu.stateful_normal(normal.shape)
        chance[...] = pltpu.stateful_bernoulli(0.25, chance.shape)
        byte[...] = pltpu.stateful_bits(byte.shape, np.uint8)

    shapes = [pl.ShapeDtypeStruct((64, 64), each) for each in (np.float32, np.float32, np.bool_, np.uint8)]
    uniform, normal, chance, byte = pl.pallas_call(kernel, shapes)()
    assert 2 <= uniform.min() < 2.01 and 2.99 < uniform.max() < 3
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05
    assert abs(chance.mean() - 0.25) < 0.03
    assert len(np.unique(byte)) == 256


def test_a_key_is_a_seed() -> None:
    def kernel(key: Any, out: Any) -> None:
        pltpu.prng_seed(key[...])
        out[...] = pltpu.prng_random_bits(SHAPE)

    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(SHAPE, np.int32))
    keys = pltpu.to_pallas_key(np.stack([key_of(0), key_of(1)]))
    assert np.array_equal(keys[1], pltpu.to_pallas_key(key_of(1)))
    assert not np.array_equal(call(keys[0]), call(keys[1]))


@pytest.mark.parametrize("block", [(16, 128), (32, 256)])
def test_the_blocks_of_an_array_are_jaxs_however_it_is_divided(block: tuple[int, int]) -> None:
    from jax.experimental.pallas import tpu

    total, tile = (64, 512), (16, 128)

    def kernel(key: Any, out: Any) -> None:
        out[...] = pltpu.sample_block(ours.random.uniform, key[...], block, tile, total)

    found = pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct(total, np.float32),
        grid=(total[0] // block[0], total[1] // block[1]),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)],
        out_specs=pl.BlockSpec(block, lambda i, j: (i, j)),
    )(key_of(5))
    expected = tpu.sample_block(jax.random.uniform, jax.random.key(5), total, tile, total, (0, 0))
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_bits_in_place_of_a_mask() -> None:
    def kernel(x: Any, out: Any) -> None:
        pltpu.prng_seed(1)
        out[...] = jnp.where(pltpu.prng_random_bits(x.shape) >= 0, x[...], 0)

    x = np.ones((64, 64), np.float32)
    assert 0.4 < pl.pallas_call(kernel, pl.ShapeDtypeStruct(x.shape, x.dtype))(x).mean() < 0.6


@pytest.mark.one_executor
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_pipeline_fetches_a_key(executor: str) -> None:
    def draw(key: Any, out: Any) -> None:
        out[...] = ours.random.uniform(key[...], shape=out.shape)

    def kernel(key: Any, out: Any) -> None:
        pltpu.emit_pipeline(
            draw,
            grid=(),
            in_specs=[pl.BlockSpec(memory_space=pltpu.MemorySpace.KEY)],
            out_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
        )(key, out)

    key = pltpu.to_pallas_key(key_of(3))
    specs = {"in_specs": [pl.BlockSpec(memory_space=pl.ANY)], "out_specs": pl.BlockSpec(memory_space=pl.ANY)}
    call = pl.pallas_call(kernel, pl.ShapeDtypeStruct(SHAPE, np.float32), interpret=executor, **specs)
    assert np.array_equal(call(key), ours.random.uniform(key, SHAPE))
