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
from palladio.hopper.launch import timing as events
from palladio.hopper.launch.kernel import LoadedKernel
from palladio.hopper.twin.run import SCHEDULES
from palladio.library import hopper, tune
from palladio.library.checks import forget_calls
from palladio.library.hopper import tuned
from palladio.library.hopper.model import Product, candidates, choose
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
    monkeypatch.setattr(tuned, "FEWER_STAGES", 1)
    monkeypatch.setattr(events, "FLUSHED", 1 << 10)
    monkeypatch.setattr(plgpu, "card_name", lambda: "Imitated H100")


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
    kept = tuned.Measurement("matmul", product, (256, 64, 512), False, (), lambda config: lambda: None)
    model = choose(product)
    kept.keep(hopper.MatmulConfig(stages=50))
    assert tuned.division("matmul", product) == model


def test_the_command(card: FakeDriver, last_is_fastest: None, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_the_command_without_a_card(card: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    card.begin(devices=0)
    assert main(["tune", "matmul", "256", "64", "512", "--dtype", "bfloat16", "--executor", "hopper"]) == 2
    assert "the CUDA driver finds no GPU" in capsys.readouterr().err
