"""JAX's transformations over the library's kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import palladio as pl
from palladio import library
from palladio.interop.jax import foreign, gmm, matmul, softmax, tgmm
from tests.architecture.source import ROOT

TILES = (4, 2, 2)
SIZES = jnp.array([3, 0, 4])


def array(*shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), dtype)


def loop(lhs, rhs, sizes):
    """The same product by JAX alone: each row with the matrix of its group, rows of no group with zeros."""
    ends = jnp.cumsum(sizes)
    group = jnp.searchsorted(ends, jnp.arange(lhs.shape[0]), side="right")
    matrices = jnp.concatenate([rhs, jnp.zeros_like(rhs[:1])])[group]
    return jnp.einsum("mk,mkn->mn", lhs, matrices, precision="highest")


def check(function, *inputs, modes=("rev",)):
    check_grads(function, inputs, 2, modes=modes, eps=1e-2, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("wrap", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_gradients_agree_with_those_of_jax(wrap):
    lhs, rhs, weights = array(9, 3), array(3, 3, 2), array(9, 2, seed=1)
    ours = wrap(jax.grad(lambda lhs, rhs, sizes: (gmm(lhs, rhs, sizes, tiling=TILES) * weights).sum(), argnums=(0, 1)))
    theirs = jax.grad(lambda lhs, rhs, sizes: (loop(lhs, rhs, sizes) * weights).sum(), argnums=(0, 1))
    for sizes in (SIZES, SIZES[::-1]):
        for found, expected in zip(ours(lhs, rhs, sizes), theirs(lhs, rhs, sizes), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_gmm_and_its_gradient_have_gradients(transpose_rhs):
    rhs = array(3, 2, 3) if transpose_rhs else array(3, 3, 2)
    check(lambda lhs, rhs: gmm(lhs, rhs, SIZES, tiling=TILES, transpose_rhs=transpose_rhs), array(9, 3), rhs)


def test_a_shard_and_existing_out_have_gradients():
    sizes = jnp.array([2, 3, 0, 4])
    function = lambda lhs, rhs, existing: gmm(lhs, rhs, sizes, jnp.float32, TILES, jnp.int32(1), existing)
    check(function, array(10, 3), array(2, 3, 2), array(10, 2))


def test_tgmm_and_its_gradient_have_gradients():
    check(lambda lhs, rhs: tgmm(lhs, rhs, SIZES, tiling=TILES), array(3, 9), array(9, 2), modes=("fwd", "rev"))
    function = lambda lhs, rhs, existing: tgmm(lhs, rhs, SIZES, jnp.float32, TILES, 1, 2, existing)
    check(function, array(3, 9), array(9, 2), array(2, 3, 2))


def test_matmul_and_softmax_have_gradients():
    check(lambda x, y: matmul(x, y, tiling=TILES), array(5, 3), array(3, 4))
    check(lambda x: softmax(x, block_rows=2), array(5, 3))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32], ids=lambda dtype: dtype.__name__)
def test_results_are_those_of_the_library_in_its_dtypes(dtype):
    lhs, rhs = array(9, 3, dtype=dtype), array(3, 3, 2, dtype=dtype)
    out = jax.jit(gmm)(lhs, rhs, SIZES)
    assert isinstance(out, jax.Array) and out.dtype == dtype
    np.testing.assert_array_equal(out, library.gmm(np.asarray(lhs), np.asarray(rhs), SIZES))
    grads = jax.grad(lambda lhs, rhs: gmm(lhs, rhs, SIZES).sum(), argnums=(0, 1))(lhs, rhs)
    assert [grad.dtype for grad in grads] == [dtype, dtype]


def test_offset_and_sizes_may_be_traced():
    lhs, rhs = array(9, 3), array(2, 3, 2)
    found = jax.jit(lambda sizes, offset: gmm(lhs, rhs, sizes, group_offset=offset))(SIZES, jnp.int32(1))
    np.testing.assert_array_equal(found, library.gmm(np.asarray(lhs), np.asarray(rhs), SIZES, group_offset=1))


def test_vmap_runs_one_product_after_another():
    lhs, rhs = array(4, 9, 3), array(3, 3, 2)
    found = jax.vmap(lambda lhs: gmm(lhs, rhs, SIZES))(lhs)
    np.testing.assert_array_equal(found, jnp.stack([gmm(each, rhs, SIZES) for each in lhs]))


def test_what_is_refused_is_refused_at_once_with_the_line_of_the_call():
    with pytest.raises(pl.PalladioValueError, match="rhs: does not multiply with lhs") as caught:
        jax.jit(lambda lhs: gmm(lhs, array(3, 3, 2), SIZES))(array(9, 4))
    assert f"{__file__}:" in str(caught.value)
    with pytest.raises(pl.PalladioValueError, match="group sizes sum to more") as caught:
        gmm(array(9, 3), array(3, 3, 2), [5, 5, 5])
    assert f"{__file__}:" in str(caught.value)


def test_traced_sizes_are_checked_when_the_product_runs():
    def run(*args):
        return gmm(*args)

    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        jax.jit(run)(array(9, 3), array(3, 3, 2), jnp.array([5, 5, 5])).block_until_ready()
    message = (
        "INVALID_ARGUMENT: group_sizes: the group sizes sum to more than the number of rows\n"
        "  expected: at most 9\n"
        "  got:      15\n"
        f"  {__file__}:"
    )
    assert str(caught.value).startswith(message)
    assert "    return gmm(*args)\n" in str(caught.value)


def test_an_error_under_jit_shows_the_users_line_and_none_of_jax():
    for sizes, kind in (([5, 5, 5], jax.errors.JaxRuntimeError), ([1.0, 2.0], pl.PalladioTypeError)):
        with pytest.raises(kind) as caught:
            jax.jit(gmm)(array(11, 3), array(3, 3, 2), jnp.array(sizes)).block_until_ready()
        assert f"  {__file__}:" in str(caught.value) and "jax/_src" not in str(caught.value)


@pytest.mark.parametrize("transformation", [jax.jit, jax.grad, jax.vmap], ids=["jit", "grad", "vmap"])
def test_the_library_itself_says_which_module_jax_transforms(transformation):
    lhs, rhs = array(2, 9, 3), array(3, 3, 2)
    given = lhs if transformation is jax.vmap else lhs[0]
    with pytest.raises(pl.PalladioTypeError) as caught:
        transformation(lambda lhs: library.gmm(lhs, rhs, SIZES).sum())(given)
    first, got, hint, *_ = str(caught.value).splitlines()
    assert first == "lhs: JAX knows no values of the array while it traces a function"
    assert got.startswith("  got:      a ") and "float32[9,3]" in got
    assert hint == "  hint:     palladio.interop.jax has the library for jit, grad and vmap"
    with pytest.raises(pl.PalladioTypeError, match=r"group_sizes: JAX knows no values(.|\n)*palladio.interop.jax"):
        jax.jit(lambda sizes: library.gmm(lhs[0], rhs, sizes))(SIZES)


def test_sizes_that_are_symbols_are_refused():
    (m,) = jax.export.symbolic_shape("m")
    with pytest.raises(pl.PalladioNotImplementedError) as caught:
        jax.export.export(jax.jit(softmax))(jax.ShapeDtypeStruct((m, 4), jnp.float32))
    assert str(caught.value).startswith(
        "kernels are compiled for sizes that are numbers\n"
        "  got:      an array of shape (m, 4)\n"
        "  hint:     export the function once for each size\n"
        f"  {__file__}:"
    )


def test_what_breaks_inside_a_call_is_an_error_of_jax(monkeypatch):
    def broken(x, *, out, **options):
        raise ZeroDivisionError("no luck")

    monkeypatch.setitem(foreign.FUNCTIONS, "softmax", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: ZeroDivisionError: no luck"):
        softmax(array(2, 3)).block_until_ready()


def test_results_are_written_to_the_memory_of_xla_and_inputs_read_from_it(monkeypatch):
    x, seen = array(64, 64), []
    monkeypatch.setitem(foreign.FUNCTIONS, "softmax", lambda x, *, out, **options: seen.extend([x, out]))
    found = softmax(x).block_until_ready()
    addresses = [each.__array_interface__["data"][0] for each in seen]
    assert addresses == [x.unsafe_buffer_pointer(), found.unsafe_buffer_pointer()]


def test_arrays_without_elements_have_products():
    assert jax.jit(gmm)(array(0, 3), array(2, 3, 4), jnp.array([0, 0])).shape == (0, 4)
    np.testing.assert_array_equal(jax.jit(matmul)(array(2, 0), array(0, 3)), np.zeros((2, 3)))


def test_forward_and_reverse_mode_are_nested_as_one_likes():
    x, w, v = array(9, 3), array(3, 3, 2), array(9, 3, seed=1)
    loss = lambda product: lambda x: (jnp.tanh(product(x, w, SIZES)) ** 2).sum()
    ours, theirs = loss(gmm), loss(loop)
    forward = lambda f: jax.jvp(jax.grad(f), (x,), (v,))[1]
    reverse = lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (v,))[1])(x)
    for way in (forward, reverse, lambda f: jax.jit(jax.hessian(f))(x)):
        np.testing.assert_allclose(way(ours), way(theirs), rtol=1e-4, atol=1e-5)


def test_each_gradient_takes_its_own_tiling():
    calls = []
    look_up = lambda which: lambda *sizes: calls.append((which, sizes)) or (4, 4, 4)
    tiling = [look_up("forward"), look_up("left"), look_up("right")]
    jax.grad(lambda x, w: gmm(x, w, SIZES, tiling=tiling).sum(), argnums=(0, 1))(array(9, 3), array(3, 3, 2))
    assert {*calls} == {("forward", (9, 3, 2)), ("left", (9, 2, 3)), ("right", (9, 3, 2))}


ELSEWHERE = """
import sys
import jax.export
import numpy as np
import palladio.interop.jax
with open(sys.argv[1], "rb") as file:
    program = jax.export.deserialize(file.read())
arguments = np.load(sys.argv[2])
np.save(sys.argv[3], program.call(*(arguments[name] for name in arguments.files)))
"""


def test_an_exported_program_names_our_target_and_runs_elsewhere(tmp_path):
    arguments = array(9, 3), array(3, 3, 2), SIZES
    with pytest.raises(ValueError, match=f"(?s)custom calls.*{foreign.TARGET}"):
        jax.export.export(jax.jit(gmm))(*arguments)
    allowed = [jax.export.DisabledSafetyCheck.custom_call(foreign.TARGET)]
    run = jax.export.export(jax.jit(gmm), disabled_checks=allowed)(*arguments)
    program, given, found = (tmp_path / name for name in ("program", "given.npz", "found.npy"))
    program.write_bytes(run.serialize())
    np.savez(given, *arguments)
    subprocess.run([sys.executable, "-c", ELSEWHERE, program, given, found], cwd=ROOT, check=True)
    np.testing.assert_array_equal(np.load(found), gmm(*arguments))


@pytest.fixture(scope="module")
def devices():
    """The findings of `tests/interop/jax_devices.py`, in a process with two devices."""
    command = [sys.executable, "-m", "tests.interop.jax_devices"]
    environment = {**os.environ, "PALLADIO_EXECUTOR": "reference"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_weights_sharded_along_their_columns_stay_where_they_are(devices):
    found = devices["columns"]
    assert max(found["distance"], found["transposed"]) < 1e-6
    assert found["out"] == "(None, 'd')" and not found["gathered"]


def test_operands_sharded_otherwise_are_gathered_and_dense_products_keep_rows(devices):
    assert devices["other_axes"]["distance"] < 1e-6
    assert devices["other_axes"]["dense"] == "('d', None)"


def test_each_device_computes_the_rows_and_the_heads_that_it_has(devices):
    found = devices["leading_axes"]
    assert max(found["distance"], found["columns"]) < 1e-6
    assert (found["attention"], found["softmax"]) == ("(None, 'd', None, None)", "('d', None)")
    assert not found["gathered"]


def test_shard_map_gives_each_device_its_groups_by_an_offset(devices):
    assert max(devices["shards_of_groups"].values()) < 1e-6
