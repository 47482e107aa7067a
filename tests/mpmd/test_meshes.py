"""What every mesh says of itself, and which may stand beside which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from palladio import lax

BLOCKS = plgpu.Mesh(grid=(3,), grid_names="x", cluster=(2,), cluster_names="c", num_threads=2, thread_name="wg")
MESHES = {
    "cores": (pl.CoreMesh(("row", "column"), (2, 3)), {"row": 2, "column": 3}, pltpu.HBM),
    "tensor cores": (pltpu.TensorCoreMesh(axis_name="tc", num_cores=2), {"tc": 2}, pltpu.HBM),
    "scalar sub-cores": (pltpu.ScalarSubcoreMesh("core", 2), {"core": 2}, pltpu.HBM),
    "vector sub-cores": (pltpu.VectorSubcoreMesh("core", "subcore", 2, 4), {"core": 2, "subcore": 4}, pltpu.HBM),
    "blocks": (BLOCKS, {"x": 3, "c": 2, "wg": 2}, plgpu.GMEM),
    "warps": (plgpu.WarpMesh("warp", 2), {"warp": 2}, plgpu.GMEM),
}


@pytest.mark.parametrize(("mesh", "shape", "space"), MESHES.values(), ids=MESHES)
def test_a_mesh_says_its_axes_and_where_its_arrays_are(mesh: Any, shape: Mapping[str, int], space: Any) -> None:
    assert list(mesh.shape.items()) == list(shape.items())
    assert mesh.default_memory_space is space
    assert len(mesh.dimension_semantics) == len(shape)
    names = [getattr(semantics, "value", semantics) for semantics in mesh.dimension_semantics]
    assert all("parallel" in name for name in names)


def test_meshes_of_different_cores_have_different_types_of_core() -> None:
    types = [mesh.core_type for mesh, _, _ in MESHES.values()]
    assert len(set(types[:4])) == 4
    assert types[4] == types[5] and types[4] not in types[:4]


TOGETHER = [
    ("cores", "cores"),
    ("cores", "tensor cores"),
    ("tensor cores", "scalar sub-cores"),
    ("scalar sub-cores", "vector sub-cores"),
    ("blocks", "blocks"),
    ("warps", "warps"),
]


@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_meshes_that_may_stand_in_one_launch(one: str, other: str) -> None:
    MESHES[one][0].check_is_compatible_with(MESHES[other][0])
    MESHES[other][0].check_is_compatible_with(MESHES[one][0])


APART = [
    ("tensor cores", "tensor cores"),
    ("vector sub-cores", "vector sub-cores"),
    ("cores", "blocks"),
    ("cores", "warps"),
    ("blocks", "warps"),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_meshes_that_may_not(one: str, other: str) -> None:
    for mesh, beside in ((one, other), (other, one)):
        with pytest.raises(pl.PalladioError):
            MESHES[mesh][0].check_is_compatible_with(MESHES[beside][0])


@pytest.mark.parametrize("name", MESHES)
def test_no_mesh_goes_with_what_is_none(name: str) -> None:
    with pytest.raises(pl.PalladioError):
        MESHES[name][0].check_is_compatible_with("cores")


def test_the_sizes_of_the_other_meshes_are_known() -> None:
    def on_each(out: Any, done: Any) -> None:
        at = 2 * lax.axis_index("core") + lax.axis_index("sub")
        out[at] = at
        pl.semaphore_signal(done, device_id={"core": lax.axis_index("core")})

    def of_core(out: Any, done: Any) -> None:
        pl.semaphore_wait(done, lax.axis_size("sub"))
        out[4 + lax.axis_index("core")] = lax.axis_size(("core", "sub"))

    vector = pltpu.VectorSubcoreMesh("core", "sub", num_cores=2, num_subcores=2)
    scalar = pltpu.ScalarSubcoreMesh("core", num_cores=2)
    done = pltpu.SemaphoreType.REGULAR @ scalar
    out = pl.ShapeDtypeStruct((6,), np.int32)
    call = pl.kernel(body=[on_each, of_core], mesh=[vector, scalar], out_type=out, scratch_types=[done])
    assert call().tolist() == [0, 1, 2, 3, 4, 4]


def test_the_axes_of_sub_cores_have_the_semantics_of_pallas() -> None:
    mesh = pltpu.VectorSubcoreMesh("core", "subcore", 2, 4)
    assert mesh.dimension_semantics == [pltpu.CORE_PARALLEL, pltpu.SUBCORE_PARALLEL]


def test_the_kinds_of_core_are_those_of_a_tpu() -> None:
    assert [each.name for each in pltpu.CoreType] == ["TC", "SC_SCALAR_SUBCORE", "SC_VECTOR_SUBCORE"]


def test_meshes_of_sub_cores_have_the_size_of_the_described_tpu() -> None:
    assert dict(pltpu.VectorSubcoreMesh("core", "sub").shape) == {"core": 1, "sub": 16}
    info = pltpu.TpuInfo(sparse_core=pltpu.SparseCoreInfo(num_cores=2, num_subcores=4))
    with pltpu.described_tpu(info):
        assert dict(pltpu.VectorSubcoreMesh("core", "sub").shape) == {"core": 2, "sub": 4}
        assert dict(pltpu.ScalarSubcoreMesh("core").shape) == {"core": 2}
    assert pltpu.TensorCoreMesh(axis_name="core", num_cores=3).devices.tolist() == [0, 1, 2]
