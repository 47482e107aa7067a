"""`jax.jit` ahead of a call, meshes set for a block, printing by name, and JAX's kernel library from its own files."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import palladio as pl
from palladio import compat
from palladio.compat.modules import library_file
from tests.errors.shown import shows


@pytest.fixture
def jax() -> Iterator[Any]:
    with compat.jax():
        import jax
    yield jax
    jax.config.update("jax_num_cpu_devices", 1)


def test_lowering_traces_and_runs_nothing(jax: Any) -> None:
    calls: list[Any] = []

    @jax.jit(static_argnames=["n"])
    def times(x: Any, n: int) -> Any:
        calls.append((x.shape, n))
        return x * n

    lowered = times.lower(jax.ShapeDtypeStruct((2,), np.float32), n=3)
    assert calls == [((2,), 3)]
    assert lowered.out_info.shape == (2,)
    assert lowered.compile()(np.ones(2, np.float32), n=3).tolist() == [3, 3]
    assert times.trace(np.ones(5), n=1).lower().out_info.dtype == np.float32
    assert times.eval_shape(np.ones(4), n=2).shape == (4,)
    with pytest.raises(jax.errors.JaxRuntimeError, match="do not broadcast"):
        jax.jit(lambda a, b: a + b).lower(np.ones(2), np.ones(3))


def test_a_mesh_that_is_set_is_the_one_of_shard_map(jax: Any) -> None:
    jax.config.update("jax_num_cpu_devices", 2)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    assert (mesh.axis_names, mesh.shape) == (("x",), {"x": 2})
    spec = jax.P("x")
    with jax.set_mesh(mesh):
        total = jax.shard_map(lambda part: jax.lax.psum(part, "x"), in_specs=spec, out_specs=jax.P(), check_vma=False)
    with pl.executor("reference"):
        assert total(np.arange(4.0)).tolist() == [2, 4]
    on_no_mesh = jax.shard_map(lambda part: part, in_specs=spec, out_specs=spec)  # the mesh is that of the call
    with pytest.raises(TypeError, match="devices are those of a mesh"):
        on_no_mesh(np.arange(4.0))


def test_devices_are_arranged_in_a_mesh(jax: Any) -> None:
    jax.config.update("jax_num_cpu_devices", 4)
    create_device_mesh = jax.experimental.mesh_utils.create_device_mesh
    arranged = create_device_mesh((2, 2))
    assert [[device.id for device in row] for row in arranged] == [[0, 1], [2, 3]]
    assert create_device_mesh((1,), jax.devices()[:1])[0] == jax.devices()[0]
    assert jax.sharding.Mesh(arranged, ("x", "y")).shape == {"x": 2, "y": 2}
    with shows(
        ValueError,
        """
        mesh_shape: the mesh has a place for each device
          expected: 4 places
          got:      (3,)
          in JAX:   must equal the product of mesh_shape
          test_staged.py:N, in test_devices_are_arranged_in_a_mesh
            create_device_mesh((3,))
            ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        create_device_mesh((3,))


def test_generators_of_the_kernel_library_are_declared(jax: Any) -> None:
    prng = jax._src.random.prng
    prng.register_prng(prng.PRNGImpl(key_shape=(2,), name="pallas_philox4x32"))
    assert jax.random.uniform(jax.random.key(3, impl="pallas_philox4x32")) == jax.random.uniform(jax.random.key(3))


def test_a_mesh_of_no_devices_says_what_a_kernel_is_written_for(jax: Any) -> None:
    device = jax.sharding.AbstractDevice("NVIDIA H100", num_cores=8, platform="gpu")
    mesh = jax.sharding.AbstractMesh((2,), ("x",), abstract_device=device)
    assert mesh.shape == {"x": 2}
    with jax.sharding.use_abstract_mesh(mesh):
        assert jax.sharding.get_abstract_mesh().abstract_device.num_cores == 8
    assert jax.sharding.get_abstract_mesh().abstract_device is None and jax.sharding.get_abstract_mesh().empty
    total = jax.shard_map(lambda part: jax.lax.psum(part, "x"), mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P())
    with pl.executor("reference"):
        assert total(np.arange(4.0)).tolist() == [2, 4]


def test_a_sharding_over_one_device_changes_nothing(jax: Any) -> None:
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P(), memory_kind="pinned_host")
    assert jax.jit(lambda x: x + 1, out_shardings=sharding)(np.ones(2)).tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="out_shardings: a staged function runs on one device"):
        jax.jit(lambda x: x, out_shardings=jax.sharding.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x")))


def test_a_kernel_that_refuses_faulty_releases_of_cuda_runs(jax: Any) -> None:
    with compat.jax():
        from jax._src.lib import cuda_versions
    assert not 12080 <= cuda_versions.cuda_runtime_get_version() < 12091  # as attention_mgpu asks with a causal mask


def test_a_traced_function_prints_as_its_program(jax: Any) -> None:
    traced = jax.make_jaxpr(jax.jit(lambda x, y: jax.numpy.sin(x) + y))
    text = str(traced(jax.ShapeDtypeStruct((4,), np.float32), np.ones(4)))
    assert "sin" in text and "f32[4]" in text and "f64" not in text


@pytest.mark.parametrize("static", [1, -1, (1,)])
def test_a_function_is_traced_with_static_arguments(jax: Any, static: Any) -> None:
    def power(x: Any, count: int) -> Any:
        assert type(count) is int
        return {"power": x**count, "first": x[0]}

    given = np.ones(4, np.float32), 3
    traced, shapes = jax.make_jaxpr(power, static_argnums=static, return_shape=True)(*given)
    assert "i32" not in str(traced) and str(traced) == str(jax.make_jaxpr(power, static)(*given))
    assert {name: (each.shape, each.dtype) for name, each in shapes.items()} == {
        "power": ((4,), np.float32),
        "first": ((), np.float32),
    }
    with pytest.raises(TypeError, match="make_jaxpr has no parameter 'axis_env'"):
        jax.make_jaxpr(power, axis_env=[("i", 2)])


def test_a_partition_goes_with_its_array(jax: Any) -> None:
    jax.config.update("jax_num_cpu_devices", 2)
    assert (jax.device_count(), jax.process_count()) == (2, 1)
    with jax.set_mesh(jax.make_mesh((2,), ("x",))), pl.executor("reference"):
        x = jax.sharding.reshard(np.arange(8.0).reshape(2, 4), jax.P(None, "x"))
        swapped = jax.jit(jax.shard_map(lambda part: part[:, ::-1], out_specs=jax.P(None, "x")))(x)
        assert swapped.tolist() == [[1, 0, 3, 2], [5, 4, 7, 6]]
        again = jax.shard_map(lambda part: part[:, ::-1], out_specs=jax.P("x"))(swapped)
        assert again.tolist() == [[0, 1], [4, 5], [2, 3], [6, 7]]
        summed = jax.shard_map(lambda part: part.sum(keepdims=True), out_specs=jax.P("x"))
        assert summed(jax.numpy.ones(4)).tolist() == [4, 4]
        with pytest.raises(NotImplementedError, match="under jit the partition of an array is not known"):
            jax.jit(lambda x: summed(x) + 1)(x)


def test_masks_and_indices_outside_of_arrays(jax: Any) -> None:
    x = jax.numpy.arange(4)
    assert x.at[x > 1].set(0).tolist() == [0, 1, 0, 0]
    assert x[np.array([-1, 2, 9])].tolist() == [3, 2, 3]
    assert x[jax.numpy.newaxis, ..., np.array([7])].tolist() == [[3]]
    assert x.reshape(2, 2)[np.array([0, 5]), np.array([-9, 1])].tolist() == [0, 3]


def test_functions_of_numpy_return_arrays_of_numpy(jax: Any) -> None:
    x = jax.numpy.ones((2, 2))
    empty = np.empty_like(x)
    empty[0] = 3
    assert (type(empty), np.mean(x), np.stack([x, x]).shape) == (np.ndarray, 1, (2, 2, 2))


def test_norms_are_euclidean(jax: Any) -> None:
    x = np.float32([[3, 4], [0, 2]])
    assert jax.numpy.linalg.norm(x, axis=-1).tolist() == [5, 2]
    assert jax.sharding.reshard(jax.numpy.linalg.norm(x, 2, keepdims=True), jax.P()).shape == (1, 1)
    with pytest.raises(NotImplementedError) as caught:
        jax.numpy.linalg.norm(x, ord=1)
    assert str(caught.value).splitlines()[:2] == ["ord: norms are Euclidean here", "  got:      1"]


def test_values_are_printed_by_name(jax: Any, capsys: pytest.CaptureFixture[str]) -> None:
    jax.debug.print("{{}} {x} and {} and {y:.2f}", 1, x=np.int32(2), y=np.float32(0.5))
    assert capsys.readouterr().out == "{} 2 and 1 and 0.50\n"


def test_calls_of_custom_jvp_compute_the_function(jax: Any) -> None:
    twice = jax.custom_jvp(lambda x: 2 * x)
    twice.defjvp(lambda primals, tangents: None)
    twice.defjvps(None)
    assert twice(3) == 6


@pytest.mark.parametrize("dtype, bits", [("int4", 4), ("uint2", 2), ("float4_e2m1fn", 4), ("bfloat16", 16)])
def test_bits_of_an_element(jax: Any, dtype: str, bits: int) -> None:
    assert jax.dtypes.itemsize_bits(np.dtype(getattr(jax.numpy, dtype))) == bits


def test_modules_of_the_kernel_library_are_those_beside_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a script has the name of a package of the library; its siblings stand for the package's modules."""
    folder = tmp_path / "megablox"
    (folder / "inner").mkdir(parents=True)
    (folder / "common.py").write_text(
        textwrap.dedent("""
            import jax.numpy as jnp
            from jax._src import source_info_util
            source_info_util.register_inclusion(__file__)
            def twice(x):
                return jnp.add(x, x)
        """)
    )
    (folder / "inner" / "__init__.py").write_text("from jax.experimental.pallas.ops.tpu.megablox.common import twice")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    with compat.jax():
        from jax.experimental.pallas.ops.tpu.megablox import common, inner
    assert common.__file__ == str(folder / "common.py")
    assert inner.twice(np.ones(2)).dtype == np.float32


def test_modules_of_an_installed_kernel_library_run_on_palladio() -> None:
    pytest.importorskip("jax")
    with compat.jax():
        import jax
        from jax.experimental.pallas.ops.tpu import matmul
        from jax.experimental.pallas.ops.tpu.megablox import common
    assert matmul.pl.pallas_call.__wrapped__ is pl.pallas_call
    assert common.jnp is jax.numpy
    x = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    found = matmul.matmul(x, x, block_shape=(256, 256), block_k=256)
    np.testing.assert_allclose(found, x @ x, rtol=1e-4, atol=1e-3)


def test_other_modules_have_no_file() -> None:
    assert library_file("jax.experimental.pallas.tpu") is None
    assert library_file("jax.experimental.pallas.ops.nothing_of_the_kind") is None


def test_a_traced_array_tells_its_bytes(jax: Any) -> None:
    sizes = jax.jit(lambda x: x * 0 + np.array([x.itemsize, x.nbytes], np.float16))(np.ones(2, np.float16))
    assert sizes.tolist() == [2, 4]


def test_the_parts_of_a_result_lie_on_the_devices_of_the_mesh(jax: Any) -> None:
    jax.config.update("jax_num_cpu_devices", 4)
    automatic = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=automatic)

    def scaled(part: Any) -> tuple[Any, Any]:
        return part * (1 + jax.lax.axis_index("x")), part[:1] * 0

    out_specs = (jax.P("x"), jax.P())
    mapped = jax.shard_map(scaled, mesh=mesh, in_specs=jax.P("x"), out_specs=out_specs, check_vma=False)
    for function in (mapped, jax.jit(mapped)):
        result, total = function(jax.numpy.arange(4))
        parts = [(shard.data.tolist(), shard.replica_id) for shard in result.addressable_shards]
        assert parts == [([0, 1], 0), ([0, 1], 1), ([4, 6], 0), ([4, 6], 1)]
        assert [shard.data.tolist() for shard in total.addressable_shards] == [[0]] * 4
    (whole,) = (result + 1).addressable_shards
    assert whole.data.tolist() == [1, 2, 5, 7]
    assert jax.process_index() == 0


def test_typeof_says_where_a_reference_is_and_how_an_array_is_divided(jax: Any) -> None:
    with compat.jax():
        from jax.experimental.pallas import tpu as pltpu
    jax.config.update("jax_num_cpu_devices", 2)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    with jax.set_mesh(mesh):
        x = jax.sharding.reshard(np.zeros((4, 2), np.float32), jax.P("x", None))
        assert jax.typeof(x).sharding.spec == jax.P("x", None)
    assert jax.typeof(np.zeros((4, 2), np.float32)).sharding.spec == jax.P(None, None)
    assert jax.typeof(x).memory_space is jax.memory.Space.Device
    assert (jax.typeof(1.5).shape, jax.typeof(1.5).dtype) == ((), np.float32)
    shaped = jax.core.ShapedArray((4, 2), np.float32)
    assert jax.typeof(x) == shaped == jax.typeof(x) and hash(jax.typeof(x)) == hash(shaped)
    assert jax.typeof(x) != jax.core.ShapedArray((4, 2), np.int32)
    seen: list[Any] = []

    def kernel(x_ref: Any, out_ref: Any) -> None:
        seen.append(jax.typeof(x_ref))
        out_ref[...] = x_ref[...]

    pl.pallas_call(
        kernel,
        pl.ShapeDtypeStruct((4, 2), np.float32),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)],
    )(np.zeros((4, 2), np.float32))
    assert seen[0].memory_space == pltpu.VMEM
    assert seen[0].inner_aval == jax.ShapeDtypeStruct((4, 2), np.float32)


def test_options_of_the_compiler_have_no_effect(jax: Any) -> None:
    lowered = jax.jit(lambda x: x + 1).lower(np.zeros(2, np.float32))
    assert lowered.compile({"xla_tpu_enable_log_recorder": "true"})(np.zeros(2, np.float32)).tolist() == [1, 1]


def test_random_numbers_of_a_key_in_a_kernel_are_those_outside(jax: Any) -> None:
    def kernel(key_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jax.random.bits(key_ref[...], out_ref.shape)

    key = jax.random.key(3, impl="pallas_threefry2x32")
    with jax.threefry_partitionable(True):
        drawn = pl.pallas_call(kernel, pl.ShapeDtypeStruct((3, 5), np.uint32))(key)
    assert np.array_equal(drawn, jax.random.bits(key, (3, 5)))
    with (
        pytest.raises(NotImplementedError, match="the random generator has one form"),
        jax.threefry_partitionable(False),
    ):
        pass


def test_a_kernel_call_is_lowered_like_a_function_under_jit(jax: Any) -> None:
    with compat.jax():
        from jax.experimental import pallas

    def double(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = 2 * x_ref[...]

    call = pallas.pallas_call(double, out_shape=jax.ShapeDtypeStruct((3,), np.float32))
    lowered = call.lower(jax.ShapeDtypeStruct((3,), np.float32))
    assert lowered.out_info.shape == (3,)
    assert lowered.compile()(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    assert "store" in str(lowered.jaxpr)


def test_words_of_other_machines_that_change_nothing(jax: Any) -> None:
    with compat.jax():
        from jax.experimental.pallas import tpu as pltpu
        from jax.experimental.pallas import triton

    def kernel(x_ref: Any, out_ref: Any) -> None:
        triton.debug_barrier()
        out_ref[...] = x_ref[...]

    varying = jax.sharding.ManualAxisType(varying={"x"})
    out = jax.ShapeDtypeStruct((2,), np.float32, manual_axis_type=varying)
    assert pl.pallas_call(kernel, out)(np.ones(2, np.float32)).tolist() == [1, 1]
    assert jax.typeof(np.ones(2)).manual_axis_type.varying == frozenset()
    assert pltpu.VMEM((2, 3), np.float32).inner_aval == pl.ShapeDtypeStruct((2, 3), np.float32)
