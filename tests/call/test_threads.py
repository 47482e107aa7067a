"""Kernels that multiply tiles run NumPy's product on one thread, and leave the setting as it was."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import palladio as pl
from palladio.driver.blas_threads import multiplies_tiles_only, one_thread
from palladio.library import matmul
from palladio.ops import parse


def threads():
    """The threads of NumPy's libraries: another test of this process may have loaded SciPy's, which no kernel calls."""
    return {each["num_threads"] for each in one_thread._libraries.info() if each["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        yield


def test_one_thread_while_anybody_is_inside():
    with one_thread():
        with one_thread():
            pass
        assert threads() == {1}
    assert threads() == {2}


def test_threads_come_back_after_an_error():
    with pytest.raises(RuntimeError), one_thread():
        raise RuntimeError
    assert threads() == {2}


def product(size):
    types = f"f32[{size},{size}]"
    return parse(
        f"program f(x:{types}, y:{types}) {{\n"
        f"  a:{types} = dot_general x, y {{contracting=((1,), (0,)), batch=((), ()), dtype=f32}}\n"
        "  return a\n}"
    )


@pytest.mark.parametrize(("size", "tiles"), [(128, True), (256, False)])
def test_a_product_is_of_tiles_below_a_size(size, tiles):
    assert multiplies_tiles_only(product(size)) is tiles


def test_a_program_without_products_multiplies_no_tiles():
    assert not multiplies_tiles_only(parse("program f(x:f32[2]) {\n  return x\n}"))


def threads_seen_in(monkeypatch, x, tiling):
    """How many threads NumPy's product has while a matrix product runs on the evaluator."""
    seen, original = set(), np.matmul

    def observed(*args):
        seen.update(threads())
        return original(*args)

    monkeypatch.setattr(np, "matmul", observed)
    matmul(x, x, tiling=tiling, interpret=True)
    return seen


@pytest.mark.parametrize(("tiling", "expected"), [((128, 128, 128), 1), ((256, 256, 256), 2)])
def test_products_of_tiles_run_on_one_thread_and_large_ones_on_all(monkeypatch, tiling, expected):
    assert threads_seen_in(monkeypatch, np.ones((256, 256), np.float32), tiling) == {expected}
    assert threads() == {2}


def test_a_failing_kernel_leaves_the_threads_as_they_were():
    def kernel(x_ref, out_ref):
        pl.debug_check(x_ref[0, 0] > 0, "must be positive")
        out_ref[...] = x_ref[...] @ x_ref[...]

    x = np.zeros((8, 8), np.float32)
    with pl.enable_debug_checks(True), pytest.raises(pl.DebugCheckError):
        pl.pallas_call(kernel, pl.ShapeDtypeStruct((8, 8), np.float32), interpret=True)(x)
    assert threads() == {2}
