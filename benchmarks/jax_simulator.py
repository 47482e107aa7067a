"""JAX's interpreter of GPU kernels, in a separate Python: the releases that have it need a newer one than we do.

Run as a script by that Python, it reads the two operands' file and then a line for each requested product; it answers
each with a line when the result is in its file.
"""

from __future__ import annotations

import os
import sys

import numpy as np


def main(folder: str) -> None:
    """Serve products of the arrays in `folder/operands.npz`."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # read when JAX is imported
    import jax
    from jax._src.mesh import AbstractDevice
    from jax.experimental.pallas import mosaic_gpu as plgpu
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu as hopper
    from jax.sharding import AbstractMesh

    operands = np.load(os.path.join(folder, "operands.npz"))
    a, b = operands["a"], operands["b"]
    config = hopper.TuningConfig(
        tile_m=128,
        tile_n=128,
        tile_k=64,
        max_concurrent_steps=2,
        epi_tile_m=64,
        epi_tile_n=64,
        grid_minor_dim=hopper.MatmulDimension.M,
        grid_tile_width=1,
    )
    device = AbstractDevice(device_kind="NVIDIA H100 80GB HBM3", num_cores=132, platform="cuda")
    mesh = AbstractMesh((1,), ("x",), abstract_device=device)
    parameters = plgpu.InterpretGPUParams(detect_races=True)
    with plgpu.force_gpu_interpret_mode(parameters), jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(lambda x, y: hopper.matmul(x, y, None, config)).trace(a, b)
        product = traced.lower(lowering_platforms=("cpu",)).compile(device_assignment=tuple(jax.devices()))
    print(jax.__version__, flush=True)
    for _ in sys.stdin:
        result = np.asarray(product(a, b))
        np.save(os.path.join(folder, "result.npy"), result)
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
