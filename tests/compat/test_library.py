"""Kernels of JAX's own library, from an installed JAX, run on Palladio as they stand and agree with NumPy."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import compat
from palladio.tpu import TpuInfo, described_tpu

RNG = np.random.default_rng(5)
LENGTH, WIDTH, HEADS = 256, 64, 2


@pytest.fixture
def jax() -> Iterator[Any]:
    pytest.importorskip("jax")
    with compat.jax():
        import jax

        before = jax.config.jax_num_cpu_devices
        try:
            yield jax
        finally:
            jax.config.update("jax_num_cpu_devices", before)


def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = np.where(mask, q.astype(np.float64) @ k.swapaxes(-1, -2), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights @ v / weights.sum(axis=-1, keepdims=True)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def test_splash_attention_keeps_running_values_in_outputs_that_its_heads_share(jax: Any) -> None:
    """Its first axis is declared parallel: on a TPU, each core has a block of these outputs."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    mask = masks.MultiHeadMask([masks.CausalMask((LENGTH, LENGTH)) for _ in range(HEADS)])
    sizes = splash.BlockSizes(block_q=128, block_kv=128, block_kv_compute=128)
    kernel = splash.make_splash_mha_single_device(mask, block_sizes=sizes)
    q, k, v = (floats(HEADS, LENGTH, WIDTH) for _ in range(3))
    expected = attention(q, k, v, np.tril(np.ones((LENGTH, LENGTH), bool)))
    for _ in range(20):
        np.testing.assert_allclose(kernel(q, k, v), expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["batch", "kv_head"])
def test_paged_attention_on_two_cores(jax: Any, mode: str) -> None:
    from jax.experimental.pallas import tpu as pltpu
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

    heads, pages, page = 2, 4, 16
    lengths = np.array([1, 45], np.int32)
    k, v = (floats(heads, len(lengths) * pages, page, 128) for _ in range(2))
    q = floats(len(lengths), heads * 8, 128) / 8
    numbers = RNG.permutation(len(lengths) * pages).astype(np.int32).reshape(len(lengths), pages)
    call = functools.partial(paged_attention, pages_per_compute_block=2, megacore_mode=mode)
    with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(num_cores_or_threads=2, detect_races=True)):
        found = [call(q, k, v, lengths, numbers)]
    with described_tpu(TpuInfo(num_cores=2)), warnings.catch_warnings():
        warnings.simplefilter("error", pl.NotCompiledWarning)
        found.append(call(q, k, v, lengths, numbers))
    keys, values = (x[:, numbers].reshape(heads, len(lengths), -1, 128).swapaxes(0, 1) for x in (k, v))
    mask = (np.arange(pages * page) < lengths[:, None])[:, None, None]
    expected = attention(q.reshape(len(lengths), heads, 8, 128), keys, values, mask).reshape(q.shape)
    for each in found:
        np.testing.assert_allclose(each, expected, atol=2e-2)  # its keys and values are bfloat16


def test_a_gather_on_a_ring_of_devices(jax: Any) -> None:
    from jax.experimental import mesh_utils
    from jax.experimental.pallas.ops.tpu.all_gather import all_gather

    jax.config.update("jax_num_cpu_devices", 3)
    mesh = jax.sharding.Mesh(mesh_utils.create_device_mesh((3,), jax.devices()), ["x"])
    x = floats(3 * 16, 128)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pl.NotCompiledWarning)
        np.testing.assert_array_equal(all_gather(x, mesh=mesh, axis_name="x"), x)


def test_a_generator_of_the_library_draws_the_bits_of_jax_random(jax: Any) -> None:
    from jax.experimental.pallas.ops.tpu.random import threefry

    key = jax.random.key(7)
    for shape in ((), (5,), (300, 260)):
        found = threefry.plthreefry_random_bits(key, 32, shape)
        np.testing.assert_array_equal(found, jax.random.bits(key, shape))
    assert (threefry.threefry2x32.threefry_split(key, 3) == jax.random.split(key, 3)).all()


def test_a_gather_by_stores_to_all_gpus_waits_for_the_block_of_each(jax: Any) -> None:
    from jax.experimental.pallas.ops.gpu.all_gather_mgpu import all_gather

    jax.config.update("jax_num_cpu_devices", 2)
    spec = jax.sharding.PartitionSpec
    gather = functools.partial(all_gather, axis_name="x", num_blocks=4)
    call = jax.shard_map(
        gather, mesh=jax.make_mesh((2,), ("x",)), in_specs=spec("x"), out_specs=spec(None), check_vma=False
    )
    x = floats(2 * 64, 128)
    np.testing.assert_array_equal(call(x), x)
    report = pl.check(call, x, schedules=3)
    assert report.ok, report.render()
    assert {finding.code for finding in report.findings} == {"semaphore-not-drained"}  # it leaves the count there


@pytest.mark.parametrize("scratch", ["one", "several", "nested", "named"])
@pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])
def test_semaphores_in_scratch_are_those_of_the_block(jax: Any, scratch: str, executor: str) -> None:
    from jax.experimental import pallas
    from jax.experimental.pallas import mosaic_gpu as plgpu

    regular = plgpu.SemaphoreType.REGULAR
    rows = plgpu.SMEM((4,), np.int32)
    types = {
        "one": regular,
        "several": [rows, regular((2,))],
        "nested": ((rows, regular), rows),
        "named": {"rows": rows, "count": regular},
    }
    refs = {
        "one": lambda found: found[0],
        "several": lambda found: found[1].at[1],
        "nested": lambda found: found[0][1],
        "named": lambda found: found["count"],
    }

    def kernel(out: Any, *found: Any, **named: Any) -> None:
        block = 2 * pallas.program_id(0) + pallas.program_id(1)
        semaphore = refs[scratch](named or found)
        pallas.semaphore_signal(semaphore, block + 1)
        out[block] = pallas.semaphore_read(semaphore)
        pallas.semaphore_wait(semaphore, block + 1)

    call = plgpu.kernel(
        kernel,
        jax.ShapeDtypeStruct((6,), np.int32),
        scratch_types=types[scratch],
        grid=(3,),
        grid_names=("i",),
        cluster=(2,),
        cluster_names=("j",),
    )
    with pl.executor(executor):
        np.testing.assert_array_equal(call(), np.arange(6) + 1)
