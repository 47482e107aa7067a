"""A TPU that is described, since there is none."""

from __future__ import annotations

import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from palladio import compat
from tests.errors.shown import shows


def test_the_description_holds_inside_its_block() -> None:
    sparse = pltpu.SparseCoreInfo(num_lanes=8)
    with pltpu.described_tpu(pltpu.TpuInfo(num_cores=2, sparse_core=sparse)):
        assert pltpu.get_tpu_info().num_cores == 2
        assert pltpu.get_sparse_core_info() is sparse
        with pltpu.described_tpu(pltpu.TpuInfo()):
            assert pltpu.get_tpu_info().num_cores == 1
        assert pltpu.get_tpu_info().num_cores == 2
    assert not pltpu.is_tpu_device()


def test_a_mesh_has_the_cores_of_the_described_chip() -> None:
    assert pltpu.TensorCoreMesh(axis_name="c").num_cores == 1
    with pltpu.described_tpu(pltpu.TpuInfo(num_cores=2)):
        assert pltpu.TensorCoreMesh(axis_name="c").num_cores == 2
        assert pltpu.TensorCoreMesh(axis_name="c", num_cores=3).num_cores == 3


def test_a_mesh_made_by_the_function_of_the_guide() -> None:
    assert pltpu.create_tensorcore_mesh("c") == pltpu.TensorCoreMesh(axis_name="c", num_cores=1)
    with pltpu.described_tpu(pltpu.TpuInfo(num_cores=2)):
        assert pltpu.create_tensorcore_mesh("c").num_cores == 2
        assert pltpu.create_tensorcore_mesh("c", num_cores=3).num_cores == 3
        with compat.jax():
            import jax
        (device,) = jax.devices()
        assert (device.platform, device.device_kind, device.num_cores) == ("tpu", "TPU described", 2)
        assert jax.default_backend() == "tpu"
    assert pltpu.create_tensorcore_mesh("c", [device]).num_cores == 2
    with shows(
        ValueError,
        """
        num_cores: the cores are those of a device, or a number is given
          got:      2
          test_info.py:N, in test_a_mesh_made_by_the_function_of_the_guide
            pltpu.create_tensorcore_mesh("c", [device], num_cores=2)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.create_tensorcore_mesh("c", [device], num_cores=2)


def test_memory_spaces_are_attributes_of_their_class() -> None:
    names = ("ANY", "CMEM", "HBM", "HOST", "SEMAPHORE", "SMEM", "VMEM", "VMEM_SHARED")
    assert all(getattr(pltpu.MemorySpace, name) is getattr(pltpu, name, pl.ANY) for name in names)
    assert plgpu.MemorySpace.SMEM is plgpu.SMEM is not pltpu.SMEM


def test_no_description() -> None:
    with shows(
        ValueError,
        """
        there is no TPU here, and none is described
          hint:     with pltpu.described_tpu(pltpu.TpuInfo(num_cores=2)): ...
          test_info.py:N, in test_no_description
            pltpu.get_tpu_info()
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.get_tpu_info()


def test_no_sparse_cores() -> None:
    with (
        pltpu.described_tpu(pltpu.TpuInfo()),
        shows(
            ValueError,
            """
            the TPU that is described has no sparse cores
              hint:     pltpu.TpuInfo(sparse_core=pltpu.SparseCoreInfo())
              test_info.py:N, in test_no_sparse_cores
                pltpu.get_sparse_core_info()
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
            """,
        ),
    ):
        pltpu.get_sparse_core_info()


def test_a_description_that_is_not_one() -> None:
    with (
        pytest.raises(TypeError, match="info: a TPU is described by its record"),
        pltpu.described_tpu("v5e"),  # type: ignore[arg-type]
    ):
        pass
