"""Launches, down to what the driver is given."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from palladio.base.errors import InternalError
from palladio.hopper.launch import direct
from palladio.hopper.launch.driver import CardError, driver
from palladio.hopper.launch.kernel import LoadedKernel
from palladio.hopper.lowered import Array, ArrayParameter, Lowered, MapParameter, ScalarParameter
from palladio.library import hopper
from palladio.types import dtypes
from tests.hopper.driver.fake import ILLEGAL_ADDRESS, FakeDriver
from tests.hopper.kernels import BF16, F32, error, lowered, normal

ADD = """
#include "palladio.cuh"
PAL_KERNEL void PAL_BOUNDS(32) add(const float* x, float* y, int amount) {
  const u32 i = pal::block_index() * 32 + pal::thread_index();
  y[i] = pal::load_global(x + i) + amount;
}
"""


def add(blocks: int = 2, **changes: Any) -> Lowered:
    """Adds a number to `f32[32 * blocks]`."""
    size = (32 * blocks,)
    made = Lowered(
        name="add",
        text=ADD,
        products=(),
        parameters=(ArrayParameter("x", 0), ArrayParameter("y", 1), ScalarParameter("amount", 1, dtypes.INT32)),
        arrays=(Array("operand", 0, size, F32), Array("output", 0, size, F32)),
        grid=blocks,
        cluster=1,
        threads=32,
        shared_bytes=0,
    )
    return dataclasses.replace(made, **changes)


def loaded(card: FakeDriver, kernel: Lowered, index: int = 0) -> LoadedKernel:
    made = LoadedKernel(kernel, driver(), driver().hopper(index))
    card.kernels.append(made)
    return made


@functools.cache
def lowered_matmul(**config: Any) -> Lowered:
    x, y = normal(128, 64), normal(64, 512)
    return lowered(lambda x, y: hopper.matmul(x, y, config=hopper.MatmulConfig(**config)), x, y)


def matmul(card: FakeDriver, **config: Any) -> tuple[LoadedKernel, np.ndarray, np.ndarray]:
    x, y = card.on_card(normal(128, 64)), card.on_card(normal(64, 512))
    return loaded(card, lowered_matmul(**config)), x, y


def addresses(*arrays: np.ndarray) -> tuple[int, ...]:
    return tuple(array.ctypes.data for array in arrays)


@pytest.mark.parametrize("cluster", [None, "n"])
def test_a_matmul_gets_the_results_that_the_twin_computes_from_the_parameters(
    card: FakeDriver, cluster: str | None
) -> None:
    kernel, x, y = matmul(card, cluster=cluster)
    out = card.on_card(np.zeros((128, 512), BF16))
    kernel.launch(0, addresses(x, y, out))
    assert not card.failures
    assert error(out, x.astype(np.float64) @ y.astype(np.float64)) < 4e-3


def test_the_driver_is_told_the_shape_of_a_launch(card: FakeDriver) -> None:
    kernel, x, y = matmul(card, cluster="n", blocks=2)
    out = card.on_card(np.zeros((128, 512), BF16))
    with driver().current(driver().device(0)):
        stream = int(driver().call("cuStreamCreate", 1))
    card.calls()
    kernel.launch(stream, addresses(x, y, out))
    (launch,) = [call for call in card.calls() if call.startswith("cuLaunchKernelEx")]
    assert launch == (
        f"cuLaunchKernelEx matmul_kernel grid=2,1,1 block=384,1,1 cluster=2 shared={kernel.lowered.shared_bytes} "
        f"stream={stream:#x} attribute4"
    )


def test_a_kept_launch_is_one_call_of_the_driver(card: FakeDriver) -> None:
    kernel, x, y = matmul(card)
    out = card.on_card(np.zeros((128, 512), BF16))
    kernel.launch(2, addresses(x, y, out))
    card.calls()
    kernel.launch(2, addresses(x, y, out))
    assert [call.partition(" ")[0] for call in card.calls()] == ["cuLaunchKernelEx"]


def test_machine_code_and_ctypes_tell_the_driver_the_same(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for code in (direct._code, lambda *addresses: None):
        monkeypatch.setattr(direct, "_code", code)
        kernel, x, y = matmul(card)
        outs = [card.on_card(np.zeros((128, 512), BF16)) for _ in range(2)]
        card.calls()
        with kernel.driver.current(kernel.device):
            for stream, out in ((0, outs[0]), (2, outs[1]), (2, outs[0])):
                kernel.launch(stream, addresses(x, y, out))
        assert bool(kernel._ready) == (kernel._direct is None)
        assert all(error(out, x.astype(np.float64) @ y.astype(np.float64)) < 4e-3 for out in outs)
        made.append([call for call in card.calls() if call.startswith("cuLaunchKernelEx")])
    assert made[0] == made[1] and [" stream=0x2" in call for call in made[0]] == [False, True, True]


def test_a_map_that_is_not_pointed_elsewhere_is_named(card: FakeDriver) -> None:
    kernel, x, y = matmul(card)
    outs = [card.on_card(np.zeros((128, 512), BF16)) for _ in range(2)]
    kernel.launch(0, addresses(x, y, outs[0]))
    with kernel.driver.current(kernel.device):
        card.fail("cuTensorMapReplaceAddress", 1)
        with pytest.raises(CardError, match="from cuTensorMapReplaceAddress"):
            kernel.launch(0, addresses(x, y, outs[1]))
        kernel.launch(0, addresses(x, y, outs[1]))
    assert np.array_equal(*outs) and np.any(outs[0] != 0)


def test_maps_are_encoded_once_and_pointed_elsewhere(card: FakeDriver) -> None:
    kernel, x, y = matmul(card)
    out, other = (card.on_card(np.zeros((128, 512), BF16)) for _ in range(2))
    kernel.launch(0, addresses(x, y, out))
    with kernel.driver.current(kernel.device):
        card.calls()
        kernel.launch(0, addresses(x, y, other))
        made = [call.partition(" ")[0] for call in card.calls()]
    # Two maps of three stay as they are.
    assert made == ["cuTensorMapReplaceAddress", "cuLaunchKernelEx"]
    assert np.array_equal(out, other) and np.any(other != 0)


def test_numbers_are_passed_by_value_and_the_grid_of_the_call(card: FakeDriver) -> None:
    kernel = loaded(card, add(blocks=3, grid=1, dynamic=(1,)))
    x, y = card.on_card(np.arange(96, dtype=F32)), card.on_card(np.zeros(96, F32))
    for amount in (5, -7):
        kernel.launch(0, addresses(x, y), (amount,), kernel.lowered.blocks((x, 3)))
        assert np.array_equal(y, np.arange(96, dtype=F32) + amount)


NUMBERS = """
#include "palladio.cuh"
PAL_KERNEL void PAL_BOUNDS(32) numbers(float* y, signed char a, long long b, double c, float d) {
  if (pal::thread_index() == 0) {
    y[0] = a;
    y[1] = b + (1ll << 40);
    y[2] = 1.0 / c;
    y[3] = d;
  }
}
"""


@pytest.mark.parametrize("compiled", [True, False], ids=["machine code", "ctypes"])
def test_numbers_of_all_sizes_are_passed_by_value(
    card: FakeDriver, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr(direct, "_code", lambda *addresses: None)
    kinds = {"a": dtypes.INT8, "b": dtypes.INT64, "c": np.dtype(np.float64), "d": F32}
    parameters = (ArrayParameter("y", 0), *(ScalarParameter(*each) for each in zip(kinds, range(4), kinds.values())))
    kernel = loaded(
        card,
        add(1, name="numbers", text=NUMBERS, parameters=parameters, arrays=(Array("output", 0, (4,), F32),)),
    )
    y = card.on_card(np.zeros(4, F32))
    for numbers in ((-3, -(1 << 40) + 5, -0.0, 0.5), (np.int8(7), np.array(-(1 << 40)), np.float32(4), np.float64(2))):
        kernel.launch(0, addresses(y), numbers)
        with np.errstate(divide="ignore"):
            wanted = [numbers[0], int(numbers[1]) + (1 << 40), 1 / np.float64(numbers[2]), numbers[3]]
        np.testing.assert_array_equal(y, np.float32(wanted))
    assert not card.failures and (kernel._direct is not None) == compiled


def test_launches_at_once_have_their_own_numbers(card: FakeDriver) -> None:
    kernel, x = loaded(card, add()), card.on_card(np.zeros(64, F32))
    outs = [card.on_card(np.zeros(64, F32)) for _ in range(4)]
    kernel.launch(2, addresses(x, x), (0,))
    card.meet(4)
    at_once(*(functools.partial(kernel.launch, 2, addresses(x, y), (n,)) for n, y in enumerate(outs)))
    assert [out[0] for out in outs] == [0, 1, 2, 3] and not card.failures


def test_threads_launch_one_kernel_at_once(card: FakeDriver) -> None:
    kernel = loaded(card, add())
    x = card.on_card(np.arange(64, dtype=F32))
    outs = [card.on_card(np.zeros(64, F32)) for _ in range(8)]

    def run(n: int) -> None:
        for _ in range(5):
            kernel.launch(0, addresses(x, outs[n]), (n,))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not card.failures
    for n, out in enumerate(outs):
        assert np.array_equal(out, x + n)


def at_once(*calls: Callable[[], None]) -> None:
    """Make each call in a worker of its own; raises what one of them raises."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for each in [pool.submit(call) for call in calls]:
            each.result()


def test_other_python_threads_run_while_the_driver_holds_a_launch_up(card: FakeDriver) -> None:
    kernel, x, y = matmul(card)
    other, ones = loaded(card, add()), card.on_card(np.ones(64, F32))
    out, sums = card.on_card(np.zeros((128, 512), BF16)), card.on_card(np.zeros(64, F32))
    kernel.launch(2, addresses(x, y, out))
    card.meet(2)
    at_once(lambda: kernel.launch(2, addresses(x, y, out)), lambda: other.launch(2, addresses(ones, sums), (1,)))
    assert np.all(sums == 2)


def test_launches_of_one_kernel_at_once_have_their_own_parameters(card: FakeDriver) -> None:
    kernel, x, y = matmul(card)
    lefts = [x, *(card.on_card(n * x) for n in (2, 3, 4))]
    outs = [card.on_card(np.zeros((128, 512), BF16)) for _ in lefts]
    kernel.launch(2, addresses(x, y, outs[0]))
    for _ in range(2):
        card.meet(len(lefts))
        at_once(*(functools.partial(kernel.launch, 2, addresses(*each)) for each in zip(lefts, [y] * 4, outs)))
    assert not card.failures
    for left, out in zip(lefts, outs):
        assert error(out, left.astype(np.float64) @ y.astype(np.float64)) < 4e-3
    card.calls()
    with kernel.driver.current(kernel.device):
        kernel.launch(2, addresses(x, y, outs[0]))
    assert "cuTensorMapEncodeTiled" not in "".join(card.calls())


def test_a_launch_on_the_second_device_makes_its_context_current(card: FakeDriver) -> None:
    card.begin(devices=2)
    kernel = loaded(card, add(), index=1)
    x, y = card.on_card(np.zeros(64, F32)), card.on_card(np.zeros(64, F32))
    kernel.launch(0, addresses(x, y), (1,))
    card.calls()
    kernel.launch(0, addresses(x, y), (1,))
    launched = "cuLaunchKernelEx add grid=2,1,1 block=32,1,1 cluster=1 shared=0"
    assert [call.partition(" stream")[0] for call in card.calls()] == [
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2 1",
        "cuCtxGetCurrent",
        launched,
        "cuCtxPopCurrent_v2",
    ]
    with driver().current(driver().device(1)):
        card.calls()
        kernel.launch(0, addresses(x, y), (1,))
        assert [call.partition(" stream")[0] for call in card.calls()] == ["cuCtxGetCurrent", launched]


def test_blocks_of_parameters_are_dropped_beyond_a_number(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palladio.hopper.launch.kernel.KEPT", 2)
    monkeypatch.setattr(direct, "_code", lambda *addresses: None)
    kernel = loaded(card, add())
    x, y = card.on_card(np.zeros(64, F32)), card.on_card(np.zeros(64, F32))
    for amount in range(5):
        kernel.launch(0, addresses(x, y), (amount,))
        assert y[0] == amount
    assert len(kernel._ready) == 2


def test_a_record_that_the_machine_code_contradicts_is_refused(card: FakeDriver) -> None:
    wrong = add(parameters=(ArrayParameter("x", 0), ArrayParameter("y", 1), ScalarParameter("amount", 1, dtypes.INT64)))
    with pytest.raises(InternalError, match="amount of add has 4 bytes in the machine code, and 8 in the launch"):
        loaded(card, wrong)


def test_a_map_that_the_driver_refuses_is_an_internal_error(card: FakeDriver) -> None:
    kernel, x, y = matmul(card)
    first, *others = kernel.lowered.parameters
    assert isinstance(first, MapParameter)
    wide = dataclasses.replace(first, spec=dataclasses.replace(first.spec, box=(128, 72)))
    kernel.lowered = dataclasses.replace(kernel.lowered, parameters=(wide, *others))
    with pytest.raises(InternalError, match="the driver refuses a tensor map with CUDA_ERROR_INVALID_VALUE"):
        kernel.launch(0, addresses(x, y, y))
    assert card.complaint() == "cuTensorMapEncodeTiled: the box's inner dimension is wider than the swizzle"


# Failures.


def test_a_machine_without_the_bindings(monkeypatch: pytest.MonkeyPatch, card: FakeDriver) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(CardError) as caught:
        driver()
    assert str(caught.value).splitlines()[:2] == [
        "kernels on a GPU are launched through cuda-bindings, which is not installed",
        "  hint:     pip install 'palladio[hopper]'",
    ]


def test_a_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch, card: FakeDriver) -> None:
    def absent(flags: int) -> None:
        raise RuntimeError('"cuda" is an NVIDIA driver library and can only be found via system search.')

    monkeypatch.setattr("cuda.bindings.driver.cuInit", absent)
    with pytest.raises(CardError) as caught:
        driver()
    assert str(caught.value).splitlines()[:3] == [
        "there is no NVIDIA driver",
        '  got:      "cuda" is an NVIDIA driver library',
        "  hint:     install NVIDIA's driver (nvidia-smi shows it), or run kernels without a GPU: interpret='cpu'",
    ]


def test_a_machine_without_a_gpu(card: FakeDriver) -> None:
    card.begin(devices=0)
    with pytest.raises(CardError) as caught:
        driver()
    assert str(caught.value).splitlines()[:3] == [
        "the CUDA driver finds no GPU",
        "  got:      CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected",
        "  hint:     nvidia-smi lists the GPUs of this machine; CUDA_VISIBLE_DEVICES may hide them",
    ]


def test_an_old_driver(monkeypatch: pytest.MonkeyPatch, card: FakeDriver) -> None:
    monkeypatch.setattr("cuda.bindings.driver.cuDriverGetVersion", lambda: (0, 11080))
    with pytest.raises(CardError) as caught:
        driver()
    assert str(caught.value).splitlines()[:4] == [
        "the NVIDIA driver is too old",
        "  expected: one for CUDA 12.0 or newer (525 or newer)",
        "  got:      CUDA 11.8",
        "  hint:     install a newer driver",
    ]


def test_another_gpu(card: FakeDriver) -> None:
    card.begin(capability=(8, 0))
    with pytest.raises(CardError) as caught:
        driver().hopper(0)
    assert str(caught.value).splitlines()[:4] == [
        "kernels for GPUs are compiled for Hopper alone",
        "  expected: an H100, H200 or GH200 (sm_90a)",
        "  got:      Imitated card (sm_80)",
        "  hint:     move the arrays to the host (tensor.cpu()), where kernels are compiled for the processor",
    ]
    with pytest.raises(CardError, match="no GPU has this number"):
        driver().hopper(1)


def test_code_that_the_driver_cannot_read(card: FakeDriver) -> None:
    card.fail("cuLibraryLoadData", 200)
    with pytest.raises(CardError) as caught:
        loaded(card, add())
    assert str(caught.value).splitlines()[:3] == [
        "the driver cannot load the machine code of add: device kernel image is invalid",
        "  got:      CUDA_ERROR_INVALID_IMAGE from a driver for CUDA 13.0, Imitated H100",
        "  hint:     install a driver that is as new as NVRTC (pip list shows nvidia-cuda-nvrtc), or an older NVRTC",
    ]


@pytest.mark.parametrize(
    "call",
    [
        *("cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuDeviceGetAttribute", "cuCtxPushCurrent_v2"),
        *("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelSetAttribute"),
        *("cuTensorMapReplaceAddress", "cuLaunchKernelEx"),
    ],
)
def test_each_call_that_fails_is_named(card: FakeDriver, call: str) -> None:
    x, y, out, other = (card.on_card(np.zeros(shape, BF16)) for shape in ((128, 64), (64, 512), (128, 512), (128, 512)))
    card.fail(call)
    with pytest.raises(CardError) as caught:
        kernel = loaded(card, lowered_matmul())
        kernel.launch(2, addresses(x, y, out))
        kernel.launch(2, addresses(x, y, other))
    assert "out of memory" in str(caught.value)
    assert f"CUDA_ERROR_OUT_OF_MEMORY from {call.removesuffix('_v2')}" in str(caught.value)


def test_an_error_of_a_kernel_shows_at_a_later_call_with_the_kernels_before_it(card: FakeDriver) -> None:
    good, bad = loaded(card, add()), loaded(card, add(name="add", shared_bytes=16))
    x, y = card.on_card(np.zeros(64, F32)), card.on_card(np.zeros(64, F32))
    good.launch(0, addresses(x, y), (1,))
    bad.launch(0, (1 << 48, y.ctypes.data), (1,))  # where no array is, whatever else the process holds
    with pytest.raises(CardError) as caught:
        good.launch(0, addresses(x, y), (1,))
    assert str(caught.value).splitlines()[:3] == [
        "a kernel failed on the card: an illegal memory access was encountered (an index is outside of its array)",
        "  got:      CUDA_ERROR_ILLEGAL_ADDRESS from cuLaunchKernelEx; launched before, newest first: add, add",
        "  hint:     PALLADIO_SYNCHRONOUS=1 names the one that failed; then start a new process: CUDA has given up "
        "this one's context",
    ]


def test_a_synchronous_launch_names_the_kernel_that_failed(card: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLADIO_SYNCHRONOUS", "1")
    kernel = loaded(card, add())
    card.fail("cuStreamSynchronize", ILLEGAL_ADDRESS)
    x, y = card.on_card(np.zeros(64, F32)), card.on_card(np.zeros(64, F32))
    with pytest.raises(CardError) as caught:
        kernel.launch(0, addresses(x, y), (1,))
    assert str(caught.value).splitlines()[:3] == [
        "the kernel add failed on the card: an illegal memory access was encountered (an index is outside of its "
        "array)",
        "  got:      CUDA_ERROR_ILLEGAL_ADDRESS",
        "  hint:     start a new process: CUDA has given up this one's context",
    ]
