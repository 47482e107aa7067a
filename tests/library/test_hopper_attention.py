"""`hopper.attention` against float64."""

from __future__ import annotations

import numpy as np
import pytest

import palladio as pl
from palladio.library import hopper
from palladio.library.hopper import AttentionConfig
from tests.library.references import BFLOAT16, assert_close, normal
from tests.library.test_attention import inputs, reference
from tests.pairs import every_pair

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SMALL = AttentionConfig(block_q=8, block_kv=8, stages=2)
TOLERANCE = {np.dtype(np.float16): 1e-3, BFLOAT16: 8e-3, np.dtype(np.float32): 2e-6}


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("dtype", "causal", "default_executor"),
    every_pair(list(TOLERANCE), [False, True], ["reference", "cpu"]),
    indirect=["default_executor"],
    ids=str,
)
def test_every_dtype_of_the_tensor_cores(dtype, causal):
    q, k, v = inputs(40, 40, 16, 8, dtype=dtype)
    out = hopper.attention(q, k, v, causal=causal, config=SMALL)
    assert out.dtype == dtype
    assert_close(out, reference(q, k, v, causal), TOLERANCE[dtype])


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("lengths", "causal", "default_executor"),
    every_pair([(1, 1), (7, 33), (33, 7), (16, 32), (37, 37)], [False, True], ["reference", "cpu"]),
    indirect=["default_executor"],
)
def test_lengths_that_blocks_do_not_divide(lengths, causal):
    m, n = lengths
    q, k, v = inputs(m, n, 5, 3)
    assert_close(hopper.attention(q, k, v, causal=causal, config=SMALL), reference(q, k, v, causal), 2e-6)


@pytest.mark.one_executor
@pytest.mark.parametrize(
    ("blocks", "stages", "causal", "default_executor"),
    every_pair([(8, 8), (16, 4), (4, 16), (3, 5)], [1, 2, 3, 5], [False, True], ["reference", "cpu"]),
    indirect=["default_executor"],
)
def test_any_blocks_and_stages(blocks, stages, causal):
    block_q, block_kv = blocks
    q, k, v = inputs(21, 26, 8, 8)
    config = AttentionConfig(block_q, block_kv, stages)
    assert_close(hopper.attention(q, k, v, causal=causal, config=config), reference(q, k, v, causal), 2e-6)


@pytest.mark.usefixtures("optimised")
def test_the_default_blocks():
    q, k, v = inputs(150, 300, 64, 64, dtype=np.float16)
    assert_close(hopper.attention(q, k, v, causal=True), reference(q, k, v, True), 1e-3)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)], ids=str)
def test_any_leading_axes(lead):
    q, k, v = inputs(4, 6, 5, 3, lead)
    assert_close(hopper.attention(q, k, v, config=SMALL), reference(q, k, v), 2e-6)


@pytest.mark.parametrize("scale", [0.1, -0.5, 0.0])
def test_scale_multiplies_the_scores(scale):
    q, k, v = inputs(4, 6, 5, 3)
    assert_close(hopper.attention(q, k, v, scale=scale, config=SMALL), reference(q, k, v, scale=scale), 2e-6)


def test_keys_after_the_last_one_have_no_weight_whatever_the_scale():
    q, k, v = inputs(8, 3, 4, 4)
    assert_close(hopper.attention(q, k, v, scale=-100.0, config=SMALL), reference(q, k, v, scale=-100.0), 1e-5)


def test_large_scores_do_not_overflow():
    q, k, v = inputs(8, 16, 4, 4)
    out = hopper.attention(q * 100, k * 100, v, config=SMALL)
    assert_close(out, reference(q * 100, k * 100, v), 1e-5)


@pytest.mark.parametrize("shape", [(0, 4, 8), (2, 0, 8)], ids=str)
def test_no_heads_or_queries_give_an_empty_result(shape):
    q, k, v = (
        np.zeros(shape, np.float32),
        np.zeros((shape[0], 6, 8), np.float32),
        np.zeros((shape[0], 6, 3), np.float32),
    )
    assert hopper.attention(q, k, v).shape == (*shape[:-1], 3)


def test_the_arguments_are_unchanged():
    arrays = inputs(9, 9, 4, 4)
    copies = [array.copy() for array in arrays]
    hopper.attention(*arrays, config=SMALL)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


Q, K, V = inputs(4, 6, 5, 3)
REFUSED = {
    "a vector": (lambda: hopper.attention(Q[0, 0], K, V), "q: attention needs at least two axes\n  got:      (5,)"),
    "keys of another width": (
        lambda: hopper.attention(Q, K[..., :4], V),
        "k: the keys do not go with the queries\n  expected: (2, 'n', 5) with n and d at least 1\n"
        "  got:      (2, 6, 4)",
    ),
    "too few values": (
        lambda: hopper.attention(Q, K, V[:, :5]),
        "v: not one value for each key\n  expected: (2, 6, 'e')\n  got:      (2, 5, 3)",
    ),
    "float64": (
        lambda: hopper.attention(*(x.astype(np.float64) for x in (Q, K, V))),
        "q: the tensor cores do not multiply this dtype\n  expected: float16, bfloat16 or float32\n  got:      float64",
    ),
    "two dtypes": (
        lambda: hopper.attention(Q, K.astype(np.float16), V),
        "k: the operands of a product have one dtype\n  expected: float32\n  got:      float16",
    ),
    "a tuple for a configuration": (
        lambda: hopper.attention(Q, K, V, config=(64, 128)),
        "config: no configuration\n  expected: AttentionConfig\n  got:      (64, 128)",
    ),
    "no stages": (
        lambda: hopper.attention(Q, K, V, config=AttentionConfig(stages=0)),
        "config.stages: a positive integer\n  expected: 1 or more\n  got:      0",
    ),
    "more stages than shared memory holds": (
        lambda: hopper.attention(*inputs(4, 6, 128, 128), config=AttentionConfig(stages=4)),
        "config: the buffers do not fit into shared memory\n  expected: at most 232448 bytes\n"
        "  got:      589824 bytes\n",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_at_the_line_of_the_call(case):
    call, text = REFUSED[case]
    with pytest.raises(pl.PalladioError) as caught:
        call()
    assert text in str(caught.value)
    assert "hopper.attention(" in str(caught.value)


def test_a_result_in_the_callers_array():
    q, out = normal(0, 2, 8, 4), np.zeros((2, 8, 4), np.float32)
    assert hopper.attention(q, q, q, out=out) is out
    assert_close(out, hopper.attention(q, q, q))
    with pytest.raises(pl.PalladioValueError, match="out: there is no array for the logarithms of the sums"):
        hopper.attention(q, q, q, out=out, save_residuals=True)
