"""A TPU that is described, since there is none."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize("version", list(pltpu.ChipVersion))
def test_a_known_chip_is_described(version: pltpu.ChipVersion) -> None:
    info = pltpu.get_tpu_info_for_chip(version, 1)
    assert not info.is_megacore
    assert info.is_lite is not info.is_split_chip
    assert version.value.lstrip("v").startswith(str(info.generation))
    assert info.is_matmul_supported("float32", np.float32)
    with pltpu.described_tpu(info):
        assert pltpu.is_tpu_device()
        with compat.jax():
            import jax
        assert jax.devices()[0].device_kind == version.device_kind


def test_two_cores_of_a_chip_are_one_device_where_the_chip_can() -> None:
    whole = pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V5P, 2)
    assert whole.is_megacore
    assert not whole.is_split_chip
    assert (whole.num_cores, whole.mxu_column_size, whole.sparse_core.num_cores) == (2, 128, 4)  # type: ignore[union-attr]
    assert whole.is_matmul_supported(np.int8, np.uint8)
    assert not pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_7X, 1).is_matmul_supported(np.int8, np.int8)
    assert not pltpu.TpuInfo(generation=99).is_matmul_supported(np.float32, np.float32)


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
