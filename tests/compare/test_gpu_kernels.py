"""The Hopper kernels that JAX ships run here as they stand: their import lines are swapped, and nothing else of them.

What they take of JAX itself (`jax.jit`, the number of multiprocessors, …) is stood in for by a few names.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
from palladio import lax

RNG = np.random.default_rng(3)
BLOCKS = 3
GPUS = 3
SIZES = np.array([70, 0, 1, 121], np.int32)

IMPORTS = {
    "import jax.numpy as jnp": "import palladio.numpy as jnp",
    "from jax import numpy as jnp": "import palladio.numpy as jnp",
    "from jax import lax": "from palladio import lax",
    "import jax.experimental.pallas as pl": "import palladio as pl",
    "from jax.experimental import pallas as pl": "import palladio as pl",
    "import jax.experimental.pallas.mosaic_gpu as plgpu": "import palladio.gpu as plgpu",
    "from jax.experimental.pallas import mosaic_gpu as plgpu": "import palladio.gpu as plgpu",
}


def custom_vjp(function: Any, **_: Any) -> Any:
    function.defvjp = lambda *rules: None
    return function


DEVICE = SimpleNamespace(core_count=BLOCKS)
NAMES = {
    "jax": SimpleNamespace(
        Array=np.ndarray,
        ShapeDtypeStruct=pl.ShapeDtypeStruct,
        custom_vjp=custom_vjp,
        devices=lambda: [DEVICE],
        device_count=lambda: GPUS,
        local_device_count=lambda: GPUS,
        process_count=lambda: 1,
        jit=pl.jit,
        lax=lax,
        named_scope=lambda name: contextlib.nullcontext(),
        sharding=SimpleNamespace(get_abstract_mesh=lambda: SimpleNamespace(abstract_device=None)),
    ),
    "backend": SimpleNamespace(get_default_device=lambda: DEVICE),
    "cuda_versions": SimpleNamespace(cuda_runtime_get_version=lambda: 0),
    "dtypes": SimpleNamespace(itemsize_bits=lambda dtype: np.dtype(dtype).itemsize * 8),
}


@functools.cache
def shipped(name: str) -> Any:
    """A module of `jax.experimental.pallas.ops.gpu`, without JAX."""
    package = importlib.util.find_spec("jax")
    assert package is not None and package.origin is not None
    path = Path(package.origin).parent / f"experimental/pallas/ops/gpu/{name}.py"
    lines = path.read_text("utf-8").split("\n")
    for number, line in enumerate(lines):
        if line.startswith(("import jax", "from jax")):
            lines[number] = IMPORTS.get(line, "")
        lines[number] = lines[number].replace("num_sms = 132", f"num_sms = {BLOCKS}")
    module = types.ModuleType(f"shipped_{name}")
    vars(module).update(NAMES)
    if name == "collective_matmul_mgpu":
        vars(module)["hopper_matmul_mgpu"] = shipped("hopper_matmul_mgpu")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile("\n".join(lines), str(path), "exec", dont_inherit=True), vars(module))
    return module


def halves(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float16)


def close(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert np.linalg.norm(found - expected) <= 2e-3 * np.linalg.norm(expected)


def codes(call: Callable[..., Any], *args: Any) -> set[str]:
    """The codes of a check that has no error."""
    report = pl.check(call, *args, schedules=4)
    assert report.ok, report.render()
    return {finding.code for finding in report.findings}


@pytest.mark.parametrize("cluster", [None, 0, 1], ids=["no cluster", "cluster along m", "cluster along n"])
def test_the_persistent_matmul_awaits_its_last_stores_after_the_scope_of_their_source(cluster: int | None) -> None:
    module = shipped("hopper_matmul_mgpu")
    along = None if cluster is None else module.MatmulDimension(cluster)
    config = module.TuningConfig(64, 64, 64, 3, epi_tile_n=32, epi_tile_m=64, cluster_dimension=along)
    a, b, c = halves(256, 192), halves(192, 256), halves(256, 256)
    run = functools.partial(module.matmul, config=config)
    for added in (None, c):
        close(run(a, b, added), a.astype(np.float64) @ b + (0 if added is None else added))
        assert codes(run, a, b, added) == {"scope-in-use"}


@pytest.mark.parametrize("split", [0, 1], ids=["rows split", "columns split"])
def test_the_matmul_of_mixed_types(split: int) -> None:
    module = shipped("hopper_mixed_type_matmul_mgpu")
    config = module.TuningConfig(64, 64, 64, 2, wg_dimension=module.MatmulDimension(split))
    a, b = RNG.integers(-8, 8, (256, 128)).astype(np.int8), halves(128, 256).astype(ml_dtypes.bfloat16)
    run = functools.partial(module.mixed_matmul_kernel, out_dtype=np.float32, config=config)
    close(run(a, b), a.astype(np.float64) @ b.astype(np.float64))
    assert codes(run, a, b) == set()


def grouped(module: str, function: str, steps: int) -> Any:
    sizes = {"block_m": 64, "block_n": 64, "block_k": 64, "max_concurrent_steps": steps, "grid_block_n": 1}
    return functools.partial(getattr(shipped(module), function), group_sizes=SIZES, **sizes)


@pytest.mark.parametrize("transposed", [False, True])
def test_the_ragged_product(transposed: bool) -> None:
    run = functools.partial(grouped("ragged_dot_mgpu", "ragged_dot", 2), transpose_rhs=transposed)
    x, w = halves(SIZES.sum(), 128), halves(len(SIZES), 128, 64)
    starts = np.cumsum(SIZES) - SIZES
    expected = [x[i : i + n].astype(np.float64) @ each for i, n, each in zip(starts, SIZES, w, strict=True)]
    weights = w.swapaxes(1, 2).copy() if transposed else w
    close(run(x, weights), np.concatenate(expected))
    assert codes(run, x, weights) == set()


@pytest.mark.parametrize("steps", [1, 2])
def test_the_transposed_ragged_product(steps: int) -> None:
    run = grouped("transposed_ragged_dot_mgpu", "transposed_ragged_dot", steps)
    x, y = halves(SIZES.sum(), 64), halves(SIZES.sum(), 64)
    starts = np.cumsum(SIZES) - SIZES
    expected = [x[i : i + n].astype(np.float64).T @ y[i : i + n] for i, n in zip(starts, SIZES, strict=True)]
    close(run(x, y), np.stack(expected))
    assert codes(run, x, y) == set()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_leaves_the_last_release_of_each_slot_unobserved(causal: bool) -> None:
    module = shipped("attention_mgpu")
    config = module.TuningConfig(64, 64, 2, causal=causal)
    q, k, v = (halves(1, 256, 1, 64) for _ in range(3))
    run = functools.partial(module.attention, config=config)
    scores = q[0, :, 0].astype(np.float64) @ k[0, :, 0].T
    scores = np.where(np.tril(np.ones_like(scores, bool)) | (not causal), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    close(run(q, k, v)[0, :, 0], weights @ v[0, :, 0] / weights.sum(axis=1, keepdims=True))
    assert codes(run, q, k, v) == {"unobserved-completion"}


@pytest.mark.parametrize("executor", ["simulator", "cpu"])
def test_the_collective_matmul_sends_its_rows_from_gpu_to_gpu(executor: str) -> None:
    module = shipped("collective_matmul_mgpu")
    config = module.TuningConfig(64, 64, 64, 2, wg_dimension=module.MatmulDimension.N)
    run = functools.partial(module.all_gather_lhs_matmul, axis_name="x", config=config, dtype=np.float16)
    rows, columns = pl.PartitionSpec("x", None), pl.PartitionSpec(None, "x")
    mesh = pl.make_mesh((GPUS,), ("x",))
    a, b = halves(GPUS * 64, 128), halves(128, GPUS * 128)
    with pl.executor(executor):
        found = pl.shard_map(run, mesh=mesh, in_specs=(rows, columns), out_specs=columns, check_vma=False)(a, b)
    close(found, a.astype(np.float64) @ b)
