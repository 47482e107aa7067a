"""`palladio.compat.jax`: imports of JAX give Palladio's names, and what is missing is an error where it is used."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio import compat, lax
from palladio.base.locations import caller_location


def test_the_modules_of_jax_have_palladios_names() -> None:
    with compat.jax():
        import jax
        from jax import ShapeDtypeStruct
        from jax.experimental import pallas
        from jax.experimental.pallas import mosaic_gpu
        from jax.experimental.pallas import tpu as pltpu
    assert pallas.BlockSpec is pl.BlockSpec
    assert mosaic_gpu.Barrier is plgpu.Barrier
    assert pltpu.VMEM is importlib.import_module("palladio.tpu").VMEM
    assert pltpu.TPUMemorySpace.VMEM is pltpu.VMEM  # as older releases spell it
    assert jax.numpy.float32 is jnp.float32
    assert jax.lax.Precision is lax.Precision
    assert issubclass(ShapeDtypeStruct, pl.ShapeDtypeStruct)


def test_an_installed_jax_is_back_afterwards() -> None:
    real = pytest.importorskip("jax")
    with compat.jax():
        import jax

        assert jax is not real
    import jax as after

    assert after is real
    assert sys.modules["jax"] is real


def test_what_was_imported_inside_keeps_its_names() -> None:
    with compat.jax():
        import jax

    assert np.asarray(jax.numpy.ones(2)).tolist() == [1, 1]
    assert jax.lax.rsqrt is not None


def test_a_missing_name_is_an_error_at_the_line_that_uses_it() -> None:
    with compat.jax():
        import jax
        from jax.experimental import nothing_of_the_kind
        from jax.scipy.special import gammaln

    annotations = (nothing_of_the_kind.Array | None, jax.core.Jaxpr[int])
    assert all(map(callable, annotations))
    assert not isinstance(1, jax.core.ShapedArray)
    with pytest.raises(NotImplementedError) as caught:
        nothing_of_the_kind.deep.inside(3)
    assert str(caught.value).startswith("Palladio has no jax.experimental.nothing_of_the_kind.deep.inside\n")
    line = caller_location().line - 2  # type: ignore[union-attr]
    assert caught.value.location.line == line  # type: ignore[attr-defined]
    with pytest.raises(NotImplementedError, match="hint:     scipy itself, outside of kernels"):
        gammaln(1.0)
    with pytest.raises(NotImplementedError, match=r"Palladio has no jax\.linearize\n"):
        jax.linearize(lambda x: x)


@pytest.mark.parametrize(
    "use",
    [len, list, bool, int, float, lambda m: m + 1, lambda m: 1 - m, lambda m: m == 1, lambda m: -m, lambda m: 1 in m],
)
def test_anything_done_with_a_missing_name_is_that_error(use: Any) -> None:
    with compat.jax():
        from jax.somewhere import something
    with pytest.raises(NotImplementedError, match=r"Palladio has no jax\.somewhere\.something"):
        use(something)


def test_a_class_cannot_be_derived_from_a_missing_one() -> None:
    with compat.jax():
        from jax.extend import Base
    with pytest.raises(NotImplementedError, match=r"Palladio has no jax\.extend\.Base"):

        class _Derived(Base):  # type: ignore[misc, valid-type]
            pass


def test_jit_takes_jaxs_hints_and_refuses_shardings() -> None:
    with compat.jax():
        import jax

    @jax.jit(static_argnames=["n"], donate_argnums=(0,), inline=True)
    def times(x: Any, n: int) -> Any:
        return x * n

    assert times(jnp.ones(2), n=3).tolist() == [3, 3]
    with pytest.raises(NotImplementedError) as caught:
        jax.jit(lambda x: x, out_shardings="everywhere")
    assert str(caught.value).splitlines()[:2] == [
        "out_shardings: a staged function runs on one device",
        "  got:      'everywhere'",
    ]


def test_vmap_stacks_the_results_of_the_slices() -> None:
    with compat.jax():
        import jax

    x = np.random.default_rng(0).standard_normal((3, 4, 2)).astype(np.float32)
    y = np.arange(2, dtype=np.float32)
    mapped = jax.vmap(lambda a, b: {"sum": a.sum(axis=0) + b}, in_axes=(1, None), out_axes=1)(x, y)
    np.testing.assert_allclose(mapped["sum"], x.sum(axis=0).T + y[:, None], rtol=1e-6)


def test_shard_map_runs_on_as_many_devices_as_are_requested() -> None:
    with compat.jax():
        import jax
        from jax.sharding import NamedSharding
        from jax.sharding import PartitionSpec as P

    assert (jax.device_count(), len(jax.devices())) == (1, 1)
    jax.config.update("jax_num_cpu_devices", 4)
    try:
        mesh = jax.make_mesh((jax.device_count(),), ("x",))
    finally:
        jax.config.update("jax_num_cpu_devices", 1)
    x = jax.device_put(np.arange(8.0), NamedSharding(mesh, P("x")))
    turned = jax.shard_map(
        lambda part: jax.lax.ppermute(part, "x", [(n, (n + 1) % 4) for n in range(4)]),
        mesh=mesh,
        in_specs=P("x"),
        out_specs=P("x"),
    )
    with pl.executor("reference"):
        turned = turned(x)
    assert isinstance(turned, jax.Array)
    assert turned.tolist() == [6, 7, 0, 1, 2, 3, 4, 5]


def test_registered_classes_are_containers() -> None:
    with compat.jax():
        import jax

    @jax.tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, first: Any, second: Any) -> None:
            self.first, self.second = first, second

        def tree_flatten(self) -> Any:
            return (self.first, self.second), None

        @classmethod
        def tree_unflatten(cls, rest: Any, children: Any) -> Any:
            return cls(*children)

    @jax.jit
    def swapped(pair: Any) -> Any:
        return Pair(pair.second + 1, pair.first)

    found = swapped(Pair(jnp.zeros(1), jnp.ones(1)))
    assert [leaf.tolist() for leaf in jax.tree.leaves(found)] == [[2], [0]]
    assert jax.tree.reduce(lambda a, b: a + b.sum(), found, 0) == 2
    assert jax.tree.all(jax.tree.map(lambda leaf: leaf.ndim == 1, found))


def test_references_activations_and_devices_of_jax() -> None:
    with compat.jax():
        import jax
        from jax.experimental import pallas
        from jax.sharding import PartitionSpec

    x = np.float32([[-1, 2], [3, -4]])
    ref = jax.new_ref(x)
    ref[0] = jax.nn.relu(ref[0])
    mesh = jax.make_mesh((2,), ("x",))

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + jax.lax.axis_index("x")

    @jax.jit
    def function(x: Any) -> Any:
        call = pallas.pallas_call(kernel, jax.ShapeDtypeStruct((1, 2), np.float32))
        return jax.shard_map(call, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=jax.P("x"))(x)

    assert jax.ref.freeze(ref).tolist() == [[0, 2], [3, -4]]
    assert function(jax.freeze(ref)).tolist() == [[0, 2], [4, -3]]


def test_special_functions_of_scipy_are_those_of_lax() -> None:
    with compat.jax():
        import jax
        from jax.scipy.special import erf
    x = np.array([-1.0, 0.0, 2.0], np.float32)
    assert np.array_equal(erf(x), lax.erf(x))
    assert np.allclose(jax.scipy.special.expit(x), 1 / (1 + np.exp(-x)))
    assert np.allclose(jax.scipy.special.logsumexp(x), np.log(np.exp(x).sum()))
    assert isinstance(erf(x), jax.Array)


def test_operations_of_lax_are_objects_too() -> None:
    with compat.jax():
        import jax
    x = np.float32([0, 1])
    assert jax.lax.exp_p.name == "exp" and np.array_equal(jax.lax.exp_p.bind(x, accuracy=None), np.exp(x))
    assert np.array_equal(jax.lax.not_p.bind(np.int32([0, -3])), [-1, 2])

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jax.lax.pow_p.bind(x_ref[...], x_ref[...])

    assert np.array_equal(pl.pallas_call(kernel, pl.ShapeDtypeStruct((2,), np.float32))(x), [1, 1])


def test_array_functions_take_the_place_of_their_result() -> None:
    with compat.jax():
        import jax
    zeros = jax.numpy.zeros((2,), out_sharding=jax.P(None), device=jax.devices()[0])
    assert isinstance(zeros, jax.Array) and np.array_equal(zeros, [0, 0])


def test_shard_map_takes_the_mesh_of_its_call() -> None:
    with compat.jax():
        import jax

    @functools.partial(jax.shard_map, in_specs=jax.P("x"), out_specs=jax.P("x"))
    def double(x: Any) -> Any:
        return 2 * x

    with jax.set_mesh(jax.make_mesh((2,), ("x",))):
        assert np.array_equal(double(np.float32([1, 2, 3, 4])), [2, 4, 6, 8])
    with pytest.raises(pl.PalladioTypeError, match="devices are those of a mesh"):
        double(np.float32([1, 2]))


def test_what_is_saved_for_a_gradient_changes_no_result() -> None:
    with compat.jax():
        import jax

    def f(x: Any) -> Any:
        policy = jax.checkpoint_policies.save_only_these_names("y")
        return jax.remat(lambda x: jax.ad_checkpoint.checkpoint_name(x * x, name="y"), policy=policy)(x).sum()

    assert np.array_equal(jax.grad(f)(np.float32([1, 2])), [2, 4])


def test_functions_of_two_operands_reduce_an_axis() -> None:
    with compat.jax():
        import jax
    x = np.int32([[1, 6], [3, 5]])
    assert np.array_equal(jax.numpy.bitwise_or.reduce(x, axis=0), [3, 7])
    assert np.array_equal(jax.numpy.add.reduce(x, axis=1), [7, 8])
    assert jax.numpy.maximum.reduce(x, axis=(0, 1)) == 6


def test_parts_of_jax_that_tests_of_kernels_import() -> None:
    with compat.jax():
        from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams
        from jax._src.state.discharge import run_state
    assert InterpretGPUParams is plgpu.InterpretGPUParams

    def double(ref: Any) -> None:
        ref[...] = 2 * ref[...]

    assert np.array_equal(run_state(double)(np.float32([1, 2])), [2, 4])


def test_names_of_earlier_releases_of_pallas_are_answered() -> None:
    with compat.jax():
        import jax
        import jax.numpy as jnp
        from jax.experimental import pallas as jax_pl
        from jax.experimental.pallas import tpu as jax_pltpu
        from jax.experimental.pallas import triton

        def body(x: Any, o: Any, count: Any) -> None:
            rows = jax_pl.load(x, (jax_pl.ds(0, 16), slice(None)), mask=jnp.arange(16)[:, None] < 3, other=1.0)
            jax_pl.store(o, (slice(None), jax_pl.ds(0, 16)), jax_pl.dot(rows, rows.T))
            assert jax_pl.swap(o, (0, 0), jnp.float32(7)).shape == ()
            jax_pl.atomic_add(count, (0,), 2)

        x = np.random.default_rng(0).standard_normal((16, 16), np.float32)
        out = (jax.ShapeDtypeStruct((16, 16), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.int32))
        params = jax_pltpu.TPUCompilerParams(dimension_semantics=())
        found, count = jax_pl.pallas_call(body, out, compiler_params=params)(x)
        assert triton.TritonCompilerParams(num_warps=4, num_stages=2) is not None
        with jax.default_device(jax.devices()[0]):
            np.testing.assert_array_equal(jax.lax.with_sharding_constraint(x, None), jax.lax.pvary(x, "x"))
    rows = np.where(np.arange(16)[:, None] < 3, x, 1)
    expected = rows @ rows.T
    expected[0, 0] = 7
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_masked_swap_of_earlier_releases_returns_the_new_value_where_it_writes_none() -> None:
    with compat.jax():
        import jax
        import jax.numpy as jnp
        from jax.experimental import pallas as jax_pl

        def body(x: Any, o: Any, old: Any) -> None:
            o[...] = x[...]
            old[...] = jax_pl.swap(o, (slice(None),), -x[...], mask=jnp.arange(8) < 6)

        out = jax.ShapeDtypeStruct((8,), jnp.float32)
        found, old = jax_pl.pallas_call(body, (out, out))(np.arange(8, dtype=np.float32))
    assert found.tolist() == [0, -1, -2, -3, -4, -5, 6, 7]
    assert old.tolist() == [0, 1, 2, 3, 4, 5, -6, -7]


def test_products_of_pallas_have_32_bits_at_least() -> None:
    with compat.jax():
        import jax.numpy as jnp
        from jax.experimental import pallas as jax_pl

        def dtype(*given: str) -> str:
            return jax_pl.dot(*(jnp.ones((4, 4), each) for each in given)).dtype.name

        assert [dtype("int8", other) for other in ("int8", "int32", "float16")] == ["int32", "int32", "float32"]
        assert [dtype("bfloat16", "bfloat16"), dtype("float32", "int32")] == ["float32", "float32"]
        assert jax_pl.max_contiguous(jax_pl.multiple_of(8, 8), values=8) == 8


def test_flags_of_xla_say_how_many_devices_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with compat.jax():
        import jax

        before = jax.config.jax_num_cpu_devices
        jax.config.update("jax_num_cpu_devices", None)
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false --xla_force_host_platform_device_count=4")
        assert jax.device_count() == 4
        monkeypatch.delenv("XLA_FLAGS")
        assert jax.device_count() == 1
        jax.config.update("jax_num_cpu_devices", before)


def test_a_module_that_lacks_a_name_says_which_name_of_jax_it_is() -> None:
    with compat.jax():
        import jax

        with pytest.raises(NotImplementedError, match=r"Palladio has no jax\.tree\.leaves_with_path"):
            jax.tree.leaves_with_path({})
        with pytest.raises(NotImplementedError, match=r"Palladio has no jax\.functools"):
            jax.functools()
