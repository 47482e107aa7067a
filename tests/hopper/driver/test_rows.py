"""Products of other numbers of rows run in the machine code that a number near them was compiled for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from palladio.call import jit
from palladio.hopper import compile as nvrtc
from palladio.hopper.lowered import FewerRows
from palladio.library import hopper
from palladio.library.hopper import kept
from palladio.library.hopper.kept import RowBucket
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.stand_ins import Torch, numpy_of
from tests.hopper.driver.test_expert_gradients import INNER, NAMES, E, H, K, arguments
from tests.hopper.driver.test_namesakes import grouped, wide
from tests.hopper.kernels import BF16, F32, error, lowered, normal
from tests.library.test_experts import gradients, reference

pytestmark = pytest.mark.usefixtures("known_kernels")
Y, RHS = normal(64, 96), normal(2, 64, 96)


def positive(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(0.5, 2, shape).astype(F32)


def fails(*_: Any, **__: Any) -> Any:
    raise AssertionError("traced or compiled")


def compiles_no_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jit, "_stage", fails)
    patch.setattr(nvrtc, "_compiled", fails)


def test_rows_of_a_product(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    y = cuda.tensor(Y)

    def right(m: int, **out: Any) -> None:
        x = normal(m, 64)
        result = hopper.matmul(cuda.tensor(x), y, **out)
        assert tuple(result.shape) == (m, 96)
        assert error(numpy_of(result), wide(x) @ wide(Y)) < 5e-3

    right(100)
    compiles_no_more(monkeypatch)
    for m in (65, 127, 128):
        right(m)
    out = cuda.tensor(np.zeros((90, 96), BF16))
    right(90, out=out)
    assert np.any(numpy_of(out) != 0) and not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(129)


def test_a_kept_call_of_fewer_rows_is_one_launch(card: FakeDriver, cuda: Torch) -> None:
    x, y = cuda.tensor(normal(90, 64)), cuda.tensor(Y)
    hopper.matmul(x, y)
    hopper.matmul(x, y)
    card.calls()
    hopper.matmul(x, y)
    made = [line.partition(" ")[0] for line in card.calls()]
    assert set(made) <= {"cuLaunchKernelEx", "cuTensorMapReplaceAddress", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"}
    assert made.count("cuLaunchKernelEx") == 1


def test_machine_code_is_loaded_once_for_all_numbers_of_rows(card: FakeDriver, cuda: Torch) -> None:
    y = cuda.tensor(Y)
    card.calls()
    for m in (100, 90, 110):
        hopper.matmul(cuda.tensor(normal(m, 64)), y)
    assert sum(line.startswith("cuLibraryLoadData") for line in card.calls()) == 1


def test_rows_of_a_grouped_product(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    rhs = cuda.tensor(RHS)

    def right(*sizes: int, rows: int = 0) -> None:
        lhs = normal(sum(sizes) + rows, 64)
        given = cuda.tensor(lhs), rhs, cuda.tensor(np.int32(sizes))
        assert error(numpy_of(hopper.gmm(*given)), grouped(lhs, RHS, sizes)) < 5e-3

    right(60, 45)
    compiles_no_more(monkeypatch)
    right(0, 100)
    right(70, 0, rows=9)
    right(1, 127)
    assert not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(100, 100)


def test_rows_of_a_transposed_grouped_product(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    def right(*sizes: int, rows: int = 0) -> None:
        m = sum(sizes) + rows
        lhs, rhs = normal(64, m), normal(m, 96)
        found = numpy_of(hopper.tgmm(cuda.tensor(lhs), cuda.tensor(rhs), cuda.tensor(np.int32(sizes))))
        ends = np.cumsum(sizes)
        wanted = [wide(lhs[:, end - size : end]) @ wide(rhs[end - size : end]) for size, end in zip(sizes, ends)]
        assert error(found, np.stack(wanted)) < 5e-3

    right(60, 44)
    compiles_no_more(monkeypatch)
    right(0, 96)
    right(70, 0, rows=10)
    right(1, 127)
    assert not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(100, 100)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    scores = wide(q) @ wide(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ wide(v)


@pytest.mark.parametrize("lead", [(4,), (1, 4)])
def test_tokens_of_causal_attention(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, lead: tuple[int, ...]
) -> None:
    def right(tokens: int, **out: Any) -> None:
        q, k, v = normal(*lead, tokens, 64), normal(*lead[:-1], 2, tokens, 64), normal(*lead[:-1], 2, tokens, 128)
        result = hopper.attention(*map(cuda.tensor, (q, k, v)), causal=True, **out)
        assert tuple(result.shape) == (*lead, tokens, 128)
        heads = (np.repeat(each, 2, axis=-3) for each in (k, v))
        assert error(numpy_of(result), attended(q, *heads, True)) < 1e-2

    right(200)
    compiles_no_more(monkeypatch)
    for tokens in (129, 256):
        right(tokens)
    right(190, out=cuda.tensor(np.zeros((*lead, 190, 128), BF16)))
    assert not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(257)


def test_queries_of_attention(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    k, v = normal(2, 150, 64), normal(2, 150, 64, seed=1)

    def right(queries: int, causal: bool = False) -> None:
        q = normal(2, queries, 64, seed=queries)
        result = hopper.attention(*map(cuda.tensor, (q, k, v)), causal=causal)
        assert error(numpy_of(result), attended(q, k, v, causal)) < 1e-2

    right(100)
    right(100, causal=True)
    compiles_no_more(monkeypatch)
    for queries in (65, 128):
        right(queries)
        right(queries, causal=True)
    assert not card.failures


NARROW = np.dtype(ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize("kind", ["tensors", "rows", "blocks"])
def test_rows_of_a_product_with_factors(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    n, k = 136, 272
    y = normal(n, k, dtype=NARROW)
    y_scale = positive(*{"tensors": (), "rows": (n,), "blocks": (2, 3)}[kind])
    of_y = y_scale.repeat(128, 0)[:n].repeat(128, 1)[:, :k] if kind == "blocks" else y_scale.reshape(-1, 1)
    held = cuda.tensor(y), cuda.tensor(y_scale)

    def right(m: int, **out: Any) -> None:
        x, x_scale = normal(m, k, dtype=NARROW), positive(*{"tensors": (), "rows": (m,), "blocks": (3, m)}[kind])
        of_x = x_scale.T.repeat(128, 1)[:, :k] if kind == "blocks" else x_scale.reshape(-1, 1)
        factors = {"x_scale": cuda.tensor(x_scale), "y_scale": held[1]}
        result = hopper.matmul(cuda.tensor(x), held[0], transpose_rhs=True, **factors, **out)
        assert error(numpy_of(result), (wide(x) * of_x) @ (wide(y) * of_y).T) < 5e-3

    right(100)
    compiles_no_more(monkeypatch)
    for m in (65, 127):  # the copy engine takes no rows of 65 or 127 factors
        right(m)
    right(99, out=cuda.tensor(np.zeros((99, n), BF16)))
    assert not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(129)


def test_a_kept_product_with_factors_is_one_launch(card: FakeDriver, cuda: Torch) -> None:
    x, y = cuda.tensor(normal(90, 128, dtype=NARROW)), cuda.tensor(normal(64, 128, dtype=NARROW))
    factors = {"x_scale": cuda.tensor(positive(90)), "y_scale": cuda.tensor(positive(64))}
    for _ in range(2):
        hopper.matmul(x, y, transpose_rhs=True, **factors)
    card.calls()
    hopper.matmul(x, y, transpose_rhs=True, **factors)
    made = [line.partition(" ")[0] for line in card.calls()]
    assert made.count("cuLaunchKernelEx") == 1 and "cuLibraryLoadData" not in made


@pytest.mark.parametrize("kind", ["rows", "blocks"])
def test_rows_of_a_grouped_product_with_factors_and_existing_rows(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    n, k = 136, 272
    rhs = normal(2, n, k, dtype=NARROW)
    rhs_scale = positive(*{"rows": (2, n), "blocks": (2, 2, 3)}[kind])
    of_rhs = rhs_scale.repeat(128, 1)[:, :n].repeat(128, 2)[:, :, :k] if kind == "blocks" else rhs_scale[:, :, None]
    matrices = (wide(rhs) * of_rhs).swapaxes(1, 2)
    first = cuda.tensor(np.array(1, np.int32))

    def right(*sizes: int, rows: int = 0) -> None:
        m = sum(sizes) + rows
        lhs, existing = normal(m, k, dtype=NARROW), normal(m, n, seed=1)
        lhs_scale = positive(*{"rows": (m,), "blocks": (3, m)}[kind])
        of_lhs = lhs_scale.T.repeat(128, 1)[:, :k] if kind == "blocks" else lhs_scale[:, None]
        given = map(cuda.tensor, (lhs, rhs, np.int32(sizes)))
        factors = {"lhs_scale": cuda.tensor(lhs_scale), "rhs_scale": cuda.tensor(rhs_scale)}
        kept = {"existing_out": cuda.tensor(existing), "group_offset": first}
        result = hopper.gmm(*given, transpose_rhs=True, **factors, **kept)
        wanted = grouped(wide(lhs) * of_lhs, matrices, sizes, 1)
        wanted[: sizes[0]], wanted[sum(sizes[:3]) :] = existing[: sizes[0]], existing[sum(sizes[:3]) :]
        assert error(numpy_of(result), wanted) < 5e-3

    right(20, 40, 25, 15)
    compiles_no_more(monkeypatch)
    right(0, 61, 0, 30)
    right(10, 0, 73, 5, rows=39)
    assert not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(100, 100, 0, 0)


def test_rows_of_a_sum_of_grouped_products(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    existing = normal(2, 64, 96, seed=1)

    def right(*sizes: int) -> None:
        lhs, rhs = normal(64, sum(sizes)), normal(sum(sizes), 96)
        given = cuda.tensor(lhs), cuda.tensor(rhs), cuda.tensor(np.int32(sizes))
        found = numpy_of(hopper.tgmm(*given, existing_out=cuda.tensor(existing)))
        first = wide(lhs[:, : sizes[0]]) @ wide(rhs[: sizes[0]])
        second = wide(lhs[:, sizes[0] :]) @ wide(rhs[sizes[0] :])
        assert error(found, wide(existing) + np.stack([first, second])) < 5e-3

    right(60, 44)
    compiles_no_more(monkeypatch)
    right(0, 96)
    right(1, 127)
    assert not card.failures


@pytest.mark.parametrize(
    ("causal", "keys", "fewer"), [(True, None, 65), (False, None, 127), (False, 150, 65), (True, 150, 127)], ids=str
)
def test_tokens_of_the_gradients_of_attention(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, causal: bool, keys: int | None, fewer: int
) -> None:
    """Without a number of keys, there are as many as queries."""

    def right(tokens: int) -> None:
        count = tokens if keys is None else keys
        q, k, v = normal(4, tokens, 64), normal(2, count, 64), normal(2, count, 128, seed=1)
        grad = normal(4, tokens, 128, seed=2)
        given = [cuda.tensor(each) for each in (q, k, v)]
        out, lse = hopper.attention(*given, causal=causal, save_residuals=True)
        heads = [np.repeat(wide(each), 2, axis=0) for each in (k, v)]
        assert error(numpy_of(out), attended(q, *heads, causal)) < 1e-2
        assert tuple(lse.shape) == (4, tokens)
        found = hopper.attention_vjp(*given, out, lse, cuda.tensor(grad), causal=causal)
        exact = attention_gradients(wide(q), *heads, wide(grad), causal)
        exact = exact[0], *(each.reshape(2, 2, *each.shape[1:]).sum(1) for each in exact[1:])
        for got, wanted in zip(found, exact, strict=True):
            assert tuple(got.shape) == wanted.shape
            assert error(numpy_of(got), wanted) < 1e-2

    right(100)
    compiles_no_more(monkeypatch)
    right(fewer)
    assert not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(129)


def test_as_many_keys_as_a_kernel_has_rows_for_are_all_attended(card: FakeDriver, cuda: Torch) -> None:
    grad, v = normal(1, 100, 64, seed=2), normal(1, 128, 64, seed=1)
    for keys in (100, 128):  # where there are as many as queries, the kernel masks those past their number
        q, k, values = normal(1, 100, 64), normal(1, keys, 64, seed=3), v[:, :keys].copy()
        given = [cuda.tensor(each) for each in (q, k, values)]
        out, lse = hopper.attention(*given, save_residuals=True)
        assert error(numpy_of(out), attended(q, k, values, False)) < 1e-2
        found = hopper.attention_vjp(*given, out, lse, cuda.tensor(grad))
        exact = attention_gradients(wide(q), wide(k), wide(values), wide(grad), False)
        for got, wanted in zip(found, exact, strict=True):
            assert error(numpy_of(got), wanted) < 1e-2, keys


def attention_gradients(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, grad: np.ndarray, causal: bool
) -> tuple[np.ndarray, ...]:
    """The gradients of q, k and v, with a head of keys and values for each of queries."""
    scale = q.shape[-1] ** -0.5
    scores = q @ k.swapaxes(1, 2) * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    slopes = grad @ v.swapaxes(1, 2)
    slopes = weights * (slopes - (weights * slopes).sum(-1, keepdims=True)) * scale
    return slopes @ k, slopes.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ grad


def test_tokens_of_attention_without_a_mask(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    def right(tokens: int) -> None:
        q, k, v = (normal(2, tokens, 64, seed=seed) for seed in range(3))
        result = hopper.attention(*map(cuda.tensor, (q, k, v)))
        assert error(numpy_of(result), attended(q, k, v, False)) < 1e-2

    right(100)
    compiles_no_more(monkeypatch)
    for tokens in (65, 128):
        right(tokens)
    assert not card.failures


def normalised(x: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    if weight is not None:
        return wide(x) / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-6) * wide(weight)
    powers = np.exp(wide(x) - wide(x).max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", ["softmax", "rms_norm"])
def test_rows_of_row_functions(card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    weight = normal(96) if name == "rms_norm" else None

    def right(*lead: int, **out: Any) -> None:
        x = normal(*lead, 96)
        given = (cuda.tensor(each) for each in (x, weight) if each is not None)
        assert error(numpy_of(getattr(hopper, name)(*given, **out)), normalised(x, weight)) < 5e-3

    right(40)
    card.calls()
    compiles_no_more(monkeypatch)
    right(24)
    right(3, 40)  # 8 divides these numbers of rows, and 16 does not
    right(24)
    right(56, out=cuda.tensor(np.zeros((56, 96), BF16)))
    grids = [line.split()[2] for line in card.calls() if line.startswith("cuLaunchKernelEx")]
    assert grids == [f"grid={rows // 8},1,1" for rows in (24, 120, 24, 56)] and not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(48)


def routed(tokens: int) -> tuple[np.ndarray, ...]:
    """Ids, tokens and weights of a layer; some ids are of experts elsewhere."""
    ids = np.random.default_rng(tokens).integers(-1, E + 1, (tokens, K)).astype(np.int32)
    return ids, normal(tokens, H), normal(tokens, K, dtype=F32, seed=1)


@pytest.mark.parametrize("activation", ["swiglu", "gpt_oss"])
def test_tokens_of_an_expert_layer(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, activation: str
) -> None:
    transposed = activation == "swiglu"  # otherwise the activation is a kernel of its own
    matrices = arguments(2 * INNER, transposed)[2:4]
    up, down = map(cuda.tensor, matrices)
    wanted = [each.swapaxes(1, 2) for each in matrices] if transposed else matrices

    def right(count: int, **out: Any) -> None:
        ids, tokens, weights = routed(count)
        given = map(cuda.tensor, (tokens, ids, weights))
        result = hopper.moe_mlp(*given, up, down, activation=activation, transposed=transposed, **out)
        assert tuple(result.shape) == (count, H)
        assert error(numpy_of(result), reference(tokens, ids, weights, *wanted, activation)) < 1e-2

    right(40)
    compiles_no_more(monkeypatch)
    for count in (33, 48):
        right(count)
    right(35, out=cuda.tensor(np.zeros((35, H), BF16)))
    assert not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(49)


def test_tokens_of_the_gradients_of_an_expert_layer(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, up, down, up_bias, down_bias = arguments(2 * INNER, False)

    def right(count: int) -> None:
        ids, tokens, weights = routed(count)
        grad = normal(count, H, seed=6)
        given = [cuda.tensor(each) for each in (tokens, ids, weights, up, down)]
        biases = {"gate_up_bias": cuda.tensor(up_bias), "down_bias": cuda.tensor(down_bias)}
        out, pullback = hopper.moe_mlp_vjp(*given, **biases)
        layer = tokens, ids, weights, up, down, "swiglu", up_bias, down_bias
        assert error(numpy_of(out), reference(*layer)) < 1e-2
        exact = gradients(grad, *layer)
        for name, found in zip(NAMES, pullback(cuda.tensor(grad)), strict=True):
            assert tuple(found.shape) == exact[name].shape
            assert error(numpy_of(found), exact[name]) < 1e-2, name

    right(40)
    compiles_no_more(monkeypatch)
    right(33)
    assert not card.failures
    with pytest.raises(AssertionError, match="traced"):
        right(49)


def test_one_gradient_of_an_expert_layer(card: FakeDriver, cuda: Torch) -> None:
    ids, tokens, weights = routed(40)
    up, down = arguments(2 * INNER, False)[2:4]
    grad = normal(40, H, seed=6)
    layer = (cuda.tensor(each) for each in (tokens, ids, weights, up, down))
    call = hopper.LayerCall(*layer, None, None, "swiglu", False, None)
    found = call.gradients(cuda.tensor(grad), call.forward()[1], (True, *[False] * 5))
    exact = gradients(grad, tokens, ids, weights, up, down, "swiglu", None, None)
    assert error(numpy_of(found.tokens), exact["tokens"]) < 1e-2 and found.gate_up is None


def test_rows_that_threads_copy_are_compiled_for(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = normal(64, 90)
    for m in (100, 99):
        x = normal(m, 64)
        assert error(numpy_of(hopper.matmul(cuda.tensor(x), cuda.tensor(y))), wide(x) @ wide(y)) < 5e-3
    compiles_no_more(monkeypatch)
    with pytest.raises(AssertionError, match="traced"):
        hopper.matmul(cuda.tensor(normal(98, 64)), cuda.tensor(y))


def test_a_text_that_reads_rows_otherwise_is_for_its_own_number_of_rows() -> None:
    kernel, rows = lowered(hopper.softmax, normal(64, 128, dtype=F32)), {0: (0, 60)}
    assert kernel.of_fewer_rows(FewerRows(rows, rows)) is None
    assert kernel.of_fewer_rows(FewerRows({0: (1, 60)}, {}, guarded=True)) is None  # rows would be 60 elements apart
    guarded = kernel.of_fewer_rows(FewerRows(rows, rows, guarded=True))
    assert guarded.text == kernel.text and [each.shape for each in guarded.arrays] == [(60, 128)] * 2


def test_buckets_are_small() -> None:
    for rows in range(1, 40000, 7):
        bucket = RowBucket.of(rows, {0: 0}, (16,), lambda rows: fails)
        most = rows if bucket is None else bucket.rows
        assert rows <= most <= max(-(-rows // 128) * 128, rows + rows // 16)
        assert rows > 64 or most < rows + 16


@pytest.mark.parametrize("name", ["matmul", "moe_mlp"])
def test_staged_kernels_are_of_a_number_of_multiprocessors(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Tiles are chosen for it, and persistent kernels have as many blocks."""
    monkeypatch.setenv("PALLADIO_CACHE", "0")
    stagings: list[Any] = []
    stage = jit._stage

    def noted(*given: Any, **options: Any) -> Any:
        stagings.append(given)
        return stage(*given, **options)

    monkeypatch.setattr(jit, "_stage", noted)
    ids, tokens, weights = map(cuda.tensor, routed(40))
    layer = tokens, ids, weights, *map(cuda.tensor, arguments(2 * INNER, False)[2:4])
    given = layer if name == "moe_mlp" else (cuda.tensor(normal(99, 64)), cuda.tensor(Y))

    def made(count: int) -> int:
        monkeypatch.setattr("palladio.gpu.multiprocessors", lambda: count)
        kept._KEPT._on_card.clear()  # the fast path goes to a launch that is loaded on a device
        kept._KEPT._last_on_card.clear()
        before = len(stagings)
        getattr(hopper, name)(*given)
        return len(stagings) - before

    assert made(132) > 0
    assert made(132) == 0
    assert made(100) > 0
    assert made(132) == 0 and not card.failures
