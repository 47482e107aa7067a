"""Configurations by measurement: on memory of their own, by the driver's events, kept for later calls."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio import library
from palladio.base.errors import PalladioError
from palladio.call.gpu import timing
from palladio.cli import main
from palladio.cli import tune as command
from palladio.hopper.launch import timing as events
from palladio.hopper.launch.kernel import LoadedKernel
from palladio.hopper.twin.run import SCHEDULES
from palladio.library import hopper, tune
from palladio.library.hopper import attention_backward, tuned
from palladio.library.hopper.model import Product, candidates, choose
from palladio.library.staging import forget_calls
from tests.hopper.driver.fake import FakeDriver
from tests.hopper.driver.stand_ins import Torch, numpy_of
from tests.hopper.kernels import BF16, F32, lowered, normal, on_twin

pytestmark = pytest.mark.usefixtures("known_kernels", "few")
X, Y = normal(200, 64), normal(64, 512)


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates, a small cache to write between timings, and nothing kept."""
    monkeypatch.setenv("PALLADIO_CACHE", str(tmp_path))
    monkeypatch.setattr(tuned.KEPT, "_found", {})
    monkeypatch.setattr(tuned, "LIKELY", 1.0)
    monkeypatch.setattr(tuned, "BANDS", (2,))
    monkeypatch.setattr(tuned, "FEWER_STAGES", 0)
    monkeypatch.setattr(sys.modules["palladio.library.hopper.attention"], "BLOCKS", (64,))
    monkeypatch.setattr(attention_backward, "STEPS", (64, 112))
    monkeypatch.setattr(attention_backward, "STAGES", (2, 4))
    monkeypatch.setattr(events, "FLUSHED", 1 << 10)
    for place in (plgpu, command):  # or a name that another test has asked for would be found again
        monkeypatch.setattr(place, "card_name", lambda: "Imitated H100")


@pytest.fixture
def last_is_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(clocks: Sequence[Callable[[], float]], *_: Any) -> list[float]:
        return [2.0] * (len(clocks) - 1) + [1.0]

    monkeypatch.setattr(timing, "least_of_turns", given)


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations of the kernels that are made."""
    found: list[Any] = []
    for name, function in (("matmul", "_kernel"), ("grouped_matmul", "_kernel")):
        module = sys.modules[f"palladio.library.hopper.{name}"]
        made = getattr(module, function)

        def noted(*given: Any, _made: Any = made) -> Any:
            (config,) = (each.config for each in given if hasattr(each, "config"))
            found.append(config)
            return _made(*given)

        monkeypatch.setattr(module, function, noted)
    return found


def operands(name: str, cuda: Torch) -> list[Any]:
    arrays = {
        "matmul": (X, Y),
        "gmm": (X, normal(2, 64, 256), np.int32([90, 70])),
        "tgmm": (normal(64, 200), normal(200, 256), np.int32([90, 70])),
    }
    return [cuda.tensor(each) for each in arrays[name]]


@pytest.mark.parametrize("name", ["matmul", "gmm", "tgmm"])
def test_later_calls_use_what_was_fastest(
    name: str,
    card: FakeDriver,
    cuda: Torch,
    last_is_fastest: None,
    divided: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuned, "FEWER_STAGES", 1)
    function, given = getattr(library, name), operands(name, cuda)
    before = numpy_of(function(*given))
    (model,) = set(divided)
    (found,) = tune(function, *given)
    assert found.model == model != found.tiling and found.speed_up == 2
    for _ in range(2):
        divided.clear()
        after = numpy_of(function(*given))
        assert set(divided) == {found.tiling}
        np.testing.assert_array_equal(after, before)
        forget_calls()
        monkeypatch.setattr(tuned.KEPT, "_found", {})  # as another process, which finds it on disk
    assert not card.failures


def test_other_sizes_and_other_cards_have_the_models_choice(
    cuda: Torch, last_is_fastest: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = tune(library.matmul, *operands("matmul", cuda))
    assert found.sizes == (256, 64, 512)
    product = Product(256, 512, 64, BF16, BF16)
    assert tuned.division("matmul", product) == found.tiling
    for name, other, transposed in (
        ("matmul", Product(512, 512, 64, BF16, BF16), False),
        ("matmul", product, True),
        ("gmm", product, False),
    ):
        assert tuned.division(name, other, transposed) == choose(other)
    for card in ("NVIDIA H200", None):
        monkeypatch.setattr(plgpu, "card_name", lambda card=card: card)
        assert tuned.division("matmul", product) == choose(product)


def test_kernels_on_disk_are_of_a_configuration(card: FakeDriver, cuda: Torch, last_is_fastest: None) -> None:
    x, y = operands("matmul", cuda)
    hopper.matmul(x, y)  # is stored with the model's choice
    (found,) = tune(hopper.matmul, x, y)
    card.kernels.clear()
    hopper.matmul(x, y)
    of_more_rows = pl.ShapeDtypeStruct((256, 64), BF16), pl.ShapeDtypeStruct((64, 512), BF16)
    wanted = lowered(lambda x, y: hopper.matmul(x, y, config=found.tiling), *of_more_rows)
    assert {each.lowered.text for each in card.kernels} == {wanted.text}


def test_arrays_of_the_caller_are_neither_read_nor_written(
    card: FakeDriver, cuda: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[int] = []
    launch = LoadedKernel.launch

    def noted(kernel: LoadedKernel, stream: int, addresses: tuple[int, ...], *more: Any) -> None:
        launched.extend(addresses)
        launch(kernel, stream, addresses, *more)

    monkeypatch.setattr(LoadedKernel, "launch", noted)
    held = [np.full(shape, np.nan, BF16) for shape in ((100, 64), (64, 256))]
    x, y = map(cuda.tensor, held)
    card.calls()
    (found,) = tune(library.matmul, x, y, seconds=0)
    assert len(found.seconds) > 1 and found.tiling == found.model, "all take as long by the imitated events"
    assert set(found.seconds.values()) == {0.25e-3}
    made = [call.partition(" ")[0] for call in card.calls()]
    assert made.count("cuMemAlloc_v2") == made.count("cuMemFree_v2") > 0
    own = [(each.data_ptr(), each.data_ptr() + each.numel() * 2) for each in (x, y)]
    assert launched and not [each for each in launched for start, end in own if start <= each < end]
    assert all(np.isnan(numpy_of(each).astype(F32)).all() for each in (x, y)) and not card.failures


def double(x: Any, out: Any) -> None:
    out[...] = x[...] + x[...]


def doubled(x: Any) -> Any:
    return pl.pallas_call(double, pl.ShapeDtypeStruct(x.shape, x.dtype))(x)


def test_a_time_is_between_two_events_with_a_cold_cache(card: FakeDriver) -> None:
    x = pl.ShapeDtypeStruct((4, 32), F32)
    kernels = [pl.jit(doubled, interpret="hopper").ahead(x) for _ in range(2)]
    assert plgpu.time_kernels(kernels, [x], seconds=0) == [0.25e-3] * 2
    made = [call.partition(" ")[0] for call in card.calls()]
    start = max(n for n, name in enumerate(made) if name == "cuMemsetD8Async")
    wanted = ["cuMemsetD8Async", "cuEventRecord", "cuLaunchKernelEx", "cuEventRecord", "cuEventSynchronize"]
    assert [name for name in made[start:] if name in wanted] == wanted
    assert plgpu.time_kernels([], []) == []


def test_operands_are_random_or_given(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "DRAWN", 37)
    seen: list[np.ndarray] = []
    with events.HostMemory(0) as memory:
        for dtype in (F32, np.dtype(np.int8), np.dtype(ml_dtypes.float8_e4m3fn)):
            seen.append(memory.download(events.drawn(memory, (5, 30), dtype)))
    floats, integers, narrow = (each.reshape(-1) for each in seen)
    for each in (floats, integers, narrow):
        np.testing.assert_array_equal(each[37:74], each[:37])
        np.testing.assert_array_equal(each[148:], each[:2])
        assert len(set(each[:37].tolist())) > 8
    assert np.abs(floats).max() < 6


def refused(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(PalladioError) as caught:
        call()
    return [line.strip() for line in str(caught.value).splitlines()]


def test_a_function_of_the_host_is_not_timed_on_a_card(card: FakeDriver) -> None:
    x = pl.ShapeDtypeStruct((4, 32), F32)
    assert refused(lambda: plgpu.time_kernels([pl.jit(doubled, interpret="cpu").ahead(x)], [x]))[:3] == [
        "kernels[0]: not a function that was staged for a GPU",
        'expected: pl.jit(f, interpret="hopper").ahead(*operands)',
        "got:      Ahead",
    ]
    other = pl.jit(doubled, interpret="hopper").ahead(x)
    assert refused(lambda: plgpu.time_kernels([other], [pl.ShapeDtypeStruct((8, 32), F32)]))[:3] == [
        "kernels[0]: staged for other operands",
        "expected: f32[8,32]",
        "got:      f32[4,32]",
    ]


def test_the_library_has_no_tiles_for_float32_on_a_card(cuda: Torch) -> None:
    x, y = cuda.tensor(X.astype(F32)), cuda.tensor(Y.astype(F32))
    assert refused(lambda: tune(library.matmul, x, y))[:4] == [
        "lhs, rhs: the library multiplies floats of 16 bits on the tensor cores, and has no tiles for others",
        "expected: float16 or bfloat16",
        "got:      float32 and float32",
        "hint:     tune palladio.library.hopper.matmul, which multiplies them there",
    ]


def test_floats_of_8_bits_are_tuned(cuda: Torch, last_is_fastest: None, divided: list[Any]) -> None:
    narrow = np.dtype(ml_dtypes.float8_e4m3fn)
    x, y = cuda.tensor(normal(256, 128, dtype=narrow)), cuda.tensor(normal(256, 128, dtype=narrow))
    (found,) = tune(hopper.matmul, x, y, transpose_rhs=True)
    assert found.tiling.promote and found.tiling != found.model
    hopper.matmul(x, y, transpose_rhs=True)
    assert divided[-1] == found.tiling


def every_candidate(product: Product) -> Iterator[Any]:
    """One configuration of each tile, in clusters where there are any."""
    last = {(each.tile_m, each.tile_n, each.split): each for each in candidates(product)}
    yield from last.values()


def test_candidates_sum_in_one_order() -> None:
    """Each product has the same bits with all tiles, on the host twin."""
    x, y = normal(136, 200), normal(200, 264)
    found = []
    for config in every_candidate(Product(136, 264, 200, BF16, F32)):
        wide = functools.partial(hopper.matmul, config=config, preferred_element_type=F32)
        found += on_twin(lambda x, y, wide=wide: wide(x, y), x, y, schedules=SCHEDULES[:1])
    assert len(found) > 5
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def test_a_stored_configuration_that_does_not_fit_is_not_used() -> None:
    product = Product(256, 512, 64, BF16, F32)
    kept = tuned.Measurement("matmul", (256, 64, 512), (), lambda config: lambda: None, product)
    model = choose(product)
    kept.keep(hopper.MatmulConfig(stages=50))
    assert tuned.division("matmul", product) == model


def test_the_command(
    card: FakeDriver, last_is_fastest: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "FEWER_STAGES", 1)
    sizes = ["matmul", "256", "64", "512", "--dtype", "bfloat16", "--executor", "hopper", "--transpose-rhs"]
    assert main(["tune", *sizes]) == 0
    said = capsys.readouterr().out
    assert (
        "matmul 256 × 64 × 512" in said
        and " stages, split " in said
        and ", bands m 2" in said
        and "the model's" in said
    )
    assert "kept for Imitated H100, bfloat16" in said
    product = Product(256, 512, 64, BF16, BF16)
    assert tuned.division("matmul", product, True) != choose(product)


@pytest.mark.parametrize("kind", ["tensors", "rows", "blocks"])
@pytest.mark.parametrize("name", ["matmul", "gmm"])
def test_products_with_factors_and_another_result_are_tuned(
    name: str, kind: str, card: FakeDriver, cuda: Torch, last_is_fastest: None, divided: list[Any]
) -> None:
    narrow, groups = np.dtype(ml_dtypes.float8_e4m3fn), () if name == "matmul" else (2,)
    x, y = cuda.tensor(normal(256, 128, dtype=narrow)), cuda.tensor(normal(*groups, 256, 128, dtype=narrow))
    shapes = {"tensors": ((), ()), "rows": ((256,), (*groups, 256)), "blocks": ((1, 256), (*groups, 2, 1))}[kind]
    factors = [cuda.tensor(np.ones(shape, F32)) for shape in shapes]
    sizes = [] if name == "matmul" else [cuda.tensor(np.int32([100, 120]))]
    function = getattr(hopper, name)
    options = {"transpose_rhs": True, "preferred_element_type": F32}
    names = ("x_scale", "y_scale") if name == "matmul" else ("lhs_scale", "rhs_scale")
    (found,) = tune(function, x, y, *sizes, lhs_scale=factors[0], rhs_scale=factors[1], **options)
    assert found.tiling != found.model and len(found.seconds) > 1
    divided.clear()
    function(x, y, *sizes, **dict(zip(names, factors, strict=True)), **options)
    assert set(divided) == {found.tiling} and not card.failures
    divided.clear()
    function(x, y, *sizes, transpose_rhs=True)  # another result is another product
    assert set(divided) != {found.tiling}


def test_attention_is_tuned(card: FakeDriver, cuda: Torch, last_is_fastest: None) -> None:
    q, k = cuda.tensor(normal(2, 100, 64)), cuda.tensor(normal(1, 100, 64))
    before = numpy_of(library.attention(q, k, k, causal=True))
    (found,) = tune(library.attention, q, k, causal=True)
    assert found.model == hopper.AttentionConfig() != found.tiling and found.sizes == (128, 128, 64)
    card.kernels.clear()
    after = numpy_of(library.attention(q, k, k, causal=True))
    types = [pl.ShapeDtypeStruct((heads, 128, 64), BF16) for heads in (2, 1, 1)]
    wanted = lowered(lambda *given: hopper.attention(*given, causal=True, config=found.tiling), *types)
    assert {each.lowered.text for each in card.kernels} == {wanted.text}
    np.testing.assert_allclose(after.astype(F32), before.astype(F32), atol=0.02)
    assert not card.failures


def test_the_gradient_of_attention_is_tuned(card: FakeDriver, cuda: Torch, last_is_fastest: None) -> None:
    q, k = normal(2, 100, 64), normal(1, 100, 64)
    out, lse = (np.asarray(each) for each in hopper.attention(q, k, k, causal=True, save_residuals=True))
    given = [cuda.tensor(each) for each in (q, k, k, out, lse, normal(2, 100, 64, seed=3))]
    before = [numpy_of(each) for each in hopper.attention_vjp(*given, causal=True)]
    (found,) = tune(hopper.attention_vjp, given[0], given[1], causal=True)
    assert found.model == hopper.AttentionGradientConfig() != found.tiling and found.sizes == (128, 128, 64)
    assert len(found.seconds) == 4
    card.kernels.clear()
    after = [numpy_of(each) for each in hopper.attention_vjp(*given, causal=True)]
    kernels = [each.lowered for each in card.kernels if "delta" not in each.lowered.name]
    tile = f"steps_0: {found.tiling.stages}x{found.tiling.block_step}x64 "
    assert {each.name for each in kernels} == {"queries_kernel", "keys_kernel"}
    assert all(tile in each.text for each in kernels)
    for one, other in zip(after, before, strict=True):
        np.testing.assert_allclose(one.astype(F32), other.astype(F32), atol=0.02)
    assert not card.failures


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("activation", ["swiglu", "gpt_oss", "relu"])
def test_the_first_product_of_an_expert_layer_is_tuned(
    activation: str, transposed: bool, card: FakeDriver, cuda: Torch, last_is_fastest: None
) -> None:
    tokens, inner, h, experts, each = 40, 64, 128, 3, 2
    wide = inner if activation == "relu" else 2 * inner
    up, down = normal(experts, h, wide), normal(experts, inner, h)
    if transposed:
        up, down = (np.ascontiguousarray(matrix.swapaxes(1, 2)) for matrix in (up, down))
    x, gate_up = cuda.tensor(normal(tokens, h)), cuda.tensor(up)
    ids = np.random.default_rng(0).integers(0, experts, (tokens, each)).astype(np.int32)
    layer = x, cuda.tensor(ids), cuda.tensor(np.ones((tokens, each), F32)), gate_up, cuda.tensor(down)
    options = {"activation": activation, "transposed": transposed}
    card.kernels.clear()
    before = numpy_of(library.moe_mlp(*layer, **options))
    model = {each.lowered.text for each in card.kernels if each.lowered.name == "moe_up_kernel"}
    sizes = np.bincount(ids.ravel(), minlength=experts).astype(np.int32)
    (found,) = tune(library.moe_mlp, x, gate_up, sizes, activation=activation, transpose_rhs=transposed)
    assert found.tiling != found.model and found.sizes[:2] == (96, h)
    card.kernels.clear()
    np.testing.assert_array_equal(numpy_of(library.moe_mlp(*layer, **options)), before)
    (first,) = {each.lowered.text for each in card.kernels if each.lowered.name == "moe_up_kernel"}
    assert len(model) == 1 and model != {first}


def test_assignments_are_as_many_of_each_token(cuda: Torch) -> None:
    x, up = cuda.tensor(normal(40, 128)), cuda.tensor(normal(3, 128, 128))
    assert refused(lambda: tune(library.moe_mlp, x, up, np.int32([20, 40, 3])))[:3] == [
        "group_sizes: not as many experts of each token",
        "expected: a multiple of 40",
        "got:      63 assignments of 40 tokens",
    ]
    assert refused(lambda: tune(library.moe_mlp, x, up, np.int32([40, 40, 40]), activation="none"))[0] == (
        "activation: no such activation"
    )
    assert refused(lambda: tune(library.moe_mlp, cuda.tensor(normal(40, 64)), up, np.int32([40, 40, 40])))[:3] == [
        "gate_up: does not go with the other arrays",
        "expected: (3, 64, 128)",
        "got:      (3, 128, 128)",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["matmul", "256", "128", "256", "--dtype", "float8_e4m3fn", "--transpose-rhs", "--factors", "blocks"],
            "split",
        ),
        (["gmm", "100", "128", "128", "--groups", "2", "--result", "float32", "--dtype", "bfloat16"], "split"),
        (["attention", "100", "100", "64", "--heads", "2,1", "--causal", "--dtype", "bfloat16"], "queries, 128 keys"),
        (["attention_vjp", "100", "100", "64", "--heads", "2,1", "--dtype", "bfloat16"], "64 rows of a step, 2 stages"),
        (["moe_mlp", "40", "128", "64", "--groups", "4", "--each", "2", "--dtype", "bfloat16"], "split m"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_the_command_for_each_function(
    arguments: list[str], said: str, card: FakeDriver, last_is_fastest: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments, "--executor", "hopper"]) == 0
    shown = capsys.readouterr().out
    assert said in shown and "the model's" in shown and "kept for Imitated H100" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["attention", "64", "64", "64"], "attention has tilings with --executor hopper only"),
        (["attention_vjp", "64", "64", "64"], "attention_vjp has tilings with --executor hopper only"),
        (["matmul", "64", "64", "64", "--result", "float32"], "--result and --factors are for --executor hopper"),
        (
            ["tgmm", "64", "64", "64", "--factors", "rows", "--executor", "hopper"],
            "--factors are for gmm and matmul",
        ),
        (
            ["moe_mlp", "64", "64", "64", "--activation", "none", "--executor", "hopper"],
            "--activation is one of swiglu",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_the_command_refuses_what_there_is_no_tiling_of(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_command_without_a_card(card: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    card.begin(devices=0)
    assert main(["tune", "matmul", "256", "64", "512", "--dtype", "bfloat16", "--executor", "hopper"]) == 2
    assert "the CUDA driver finds no GPU" in capsys.readouterr().err
