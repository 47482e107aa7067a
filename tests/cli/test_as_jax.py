"""`palladio run`, `palladio port`, and `--as-jax`: files that import JAX."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from palladio.cli import main

SOURCE = """
    import sys

    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import mosaic_gpu as plgpu

    def racy(x, out, shared, full):
        plgpu.copy_gmem_to_smem(x, shared, full)
        plgpu.copy_smem_to_gmem(shared, out)
        plgpu.wait_smem_to_gmem(0)
        plgpu.barrier_wait(full)

    def main():
        shape = jax.ShapeDtypeStruct((8,), jnp.float32)
        scratch = [plgpu.SMEM((8,), jnp.float32), plgpu.Barrier()]
        return plgpu.kernel(racy, out_shape=shape, scratch_shapes=scratch)(jnp.ones(8))

    if __name__ == "__main__":
        print(type(jax.numpy.ones(1)).__module__, *sys.argv[1:])
"""


def written(folder: Path) -> str:
    path = folder / "kernels.py"
    path.write_text(textwrap.dedent(SOURCE))
    return str(path)


def palladio(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "palladio", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def test_a_script_runs_as_it_stands(tmp_path: Path) -> None:
    done = palladio("run", "--as-jax", written(tmp_path), "one", "--two")
    assert (done.returncode, done.stdout) == (0, "palladio.compat.arrays one --two\n"), done.stderr


def test_a_kernel_is_checked_as_it_stands(tmp_path: Path) -> None:
    done = palladio("check", "--as-jax", f"{written(tmp_path)}::main", "--schedules", "4")
    assert done.returncode == 1, done.stderr
    assert " --as-jax --schedule " in done.stdout


def test_port_prints_lines_and_its_status_says_if_something_is_missing(tmp_path: Path, capsys) -> None:
    path = tmp_path / "one.py"
    path.write_text("from jax import lax\nlax.exp(1.0)\n")
    assert main(["port", str(path)]) == 0
    assert capsys.readouterr().out == "1 - from jax import lax\n  + import palladio.lax as lax\n"
    path.write_text("import jax\njax.grad(1)\n")
    assert main(["port", str(path)]) == 1
    assert "would not work:\n2 jax.grad: only palladio.compat has it" in capsys.readouterr().out
    path.write_text("import jax as\n")
    assert main(["port", str(path)]) == 2
    assert capsys.readouterr().err == f"palladio: {path} is not Python: line 1: invalid syntax\n"
