"""`hopper.matmul` against float64."""

from __future__ import annotations

import numpy as np
import pytest

import palladio as pl
from palladio.library import hopper
from palladio.library.hopper import MatmulConfig
from tests.library.references import BFLOAT16, assert_close, normal
from tests.pairs import every_pair

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SMALL = MatmulConfig(tile_m=8, tile_n=8, tile_k=4, stages=2, blocks=3)
DTYPES = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32)]
CONFIGS = {
    "rows split": SMALL,
    "columns split": MatmulConfig(4, 16, 8, 3, split="n", blocks=5),
    "steps split": MatmulConfig(4, 8, 8, 2, split="k", blocks=3),
    "steps split, clusters": MatmulConfig(4, 8, 8, 3, split="k", cluster="n", epilogue_n=4, blocks=2),
    "an odd number of pieces": MatmulConfig(8, 12, 4, 2, epilogue_n=4, blocks=1),
    "more stages than steps": MatmulConfig(8, 8, 16, 6, blocks=2),
    "bands of columns": MatmulConfig(2, 4, 4, 4, snake="n", snake_width=2, blocks=4),
    "clusters along the rows": MatmulConfig(8, 8, 4, 3, cluster="m", blocks=4),
    "clusters along the columns": MatmulConfig(8, 8, 4, 2, cluster="n", blocks=2),
    "clusters, columns split": MatmulConfig(4, 8, 4, 2, cluster="m", split="n", blocks=6),
}


def product(x, y):
    return np.asarray(x).astype(np.float64) @ np.asarray(y).astype(np.float64)


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("operand", "result", "default_executor"),
    every_pair(DTYPES, [None, *DTYPES], ["reference", "cpu"]),
    indirect=["default_executor"],
    ids=str,
)
def test_every_dtype_of_the_tensor_cores_gives_a_result_in_the_preferred_one(operand, result):
    x, y = normal(0, 19, 11, dtype=operand), normal(1, 11, 13, dtype=operand)
    out = hopper.matmul(x, y, preferred_element_type=result, config=SMALL)
    assert out.dtype == (result or operand)
    assert_close(out, product(x, y))


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("name", "sizes", "default_executor"),
    every_pair(list(CONFIGS), [(32, 16, 16), (21, 9, 13), (1, 1, 1), (8, 30, 40)], ["reference", "cpu"]),
    indirect=["default_executor"],
    ids=str,
)
def test_any_sizes_and_tiles(name, sizes):
    m, k, n = sizes
    x, y = normal(0, m, k), normal(1, k, n)
    assert_close(hopper.matmul(x, y, config=CONFIGS[name]), product(x, y))


@pytest.mark.usefixtures("optimised")
@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("operand", "cluster", "default_executor"),
    every_pair([np.float16, np.float32], [None, "m", "n"], ["reference", "cpu"]),
    indirect=["default_executor"],
)
def test_the_default_tiles(operand, cluster):
    x, y = normal(0, 300, 200, dtype=operand), normal(1, 200, 520, dtype=operand)
    config = None if cluster is None else MatmulConfig(tile_k=32, cluster=cluster)
    assert_close(hopper.matmul(x, y, config=config), product(x, y))


def test_products_of_narrow_floats_are_summed_in_float32():
    x, y = np.ones((1, 4096), np.float16), np.ones((4096, 1), np.float16)
    assert hopper.matmul(x, y, preferred_element_type=np.float32)[0, 0] == 4096


@pytest.mark.parametrize(("m", "k", "n"), [(0, 4, 3), (4, 0, 3), (4, 3, 0)])
def test_sums_of_nothing_are_zero(m, k, n):
    out = hopper.matmul(np.ones((m, k), np.float16), np.ones((k, n), np.float16))
    np.testing.assert_array_equal(out, np.zeros((m, n)))
    assert out.dtype == np.float16


X, Y = normal(0, 8, 3), normal(1, 3, 4)
REFUSED = {
    "a vector": (lambda: hopper.matmul(X[0], Y), "x: an array of another rank\n  expected: [m, k]\n  got:      (3,)"),
    "matrices that do not multiply": (
        lambda: hopper.matmul(X, Y.T),
        "y: the matrices do not multiply\n  expected: [3, n]\n  got:      (4, 3)",
    ),
    "operands of two dtypes": (
        lambda: hopper.matmul(X, Y.astype(np.float16)),
        "y: the operands of a product have one dtype\n  expected: float32\n  got:      float16",
    ),
    "sums that never are promoted": (
        lambda: hopper.matmul(X, Y, config=MatmulConfig(8, 8, 8, promote=-1)),
        "config.promote: a positive integer\n  expected: 1 or more\n  got:      -1",
    ),
    "no axis of a cluster": (
        lambda: hopper.matmul(X, Y, config=MatmulConfig(8, 8, 8, cluster="k")),
        "config.cluster: no such axis\n  expected: None or 'm' or 'n'\n  got:      'k'",
    ),
}


def test_a_grouped_product_does_not_split_its_steps():
    with pytest.raises(pl.PalladioError, match=r"config\.split: no such axis\n  expected: 'm' or 'n'\n  got:      'k'"):
        hopper.gmm(X, Y[None], [8], config=MatmulConfig(8, 8, 8, split="k"))


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_at_the_line_of_the_call(case):
    call, text = REFUSED[case]
    with pytest.raises(pl.PalladioError) as caught:
        call()
    assert text in str(caught.value)
    assert "hopper.matmul(" in str(caught.value)
