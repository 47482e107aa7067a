"""What is impossible on Hopper is said before anything is compiled: the rule, the values, what to do, the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.base.errors import PalladioError, PalladioNotImplementedError, PalladioValueError
from palladio.hopper import compile as nvrtc
from palladio.hopper import inspect
from tests.hopper.kernels import BF16, F32, kernel, lowered, normal, on_twin

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
FULL = plgpu.Barrier()


def said(function: Callable[..., Any], *inputs: Any, kind: type[PalladioError] = PalladioValueError) -> list[str]:
    """The lines of the error: the rule, what was expected and got, the hint; and the line of this file, shown."""
    with pytest.raises(kind) as caught:
        lowered(function, *inputs)
    return [line.strip() for line in str(caught.value).splitlines()]


def product(a_shape: tuple[int, ...], b_shape: tuple[int, ...], dtype: np.dtype, multiply: Callable[..., None]) -> Any:
    def body(a: Any, b: Any, out: Any, a_tile: Any, b_tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a, a_tile, full)
        plgpu.copy_gmem_to_smem(b, b_tile, full)
        plgpu.barrier_wait(full)
        pl.run_scoped(lambda acc: multiply(acc, a_tile, b_tile), plgpu.ACC((64, 32)))

    scratch = [plgpu.SMEM(a_shape, dtype), plgpu.SMEM(b_shape, dtype), plgpu.Barrier(num_arrivals=2)]
    return kernel(body, (64, 32), F32, scratch)


def test_only_operands_of_16_bits_are_transposed_by_the_tensor_cores() -> None:
    call = product((64, 64), (64, 32), E4M3, plgpu.wgmma)
    lines = said(call, normal(64, 64, dtype=E4M3), normal(64, 32, dtype=E4M3))
    assert lines[:4] == [
        "the right operand of wgmma: the tensor cores take operands transposed only if their elements have 16 bits",
        "expected: k as the last axis in shared memory",
        "got:      ref<smem, f8e4m3fn[64,32]>",
        "hint:     keep it as [n, k] and multiply with ref.T (gmm: transpose_rhs)",
    ]
    assert lines[5].startswith("pl.run_scoped(lambda acc: multiply(")


def test_rows_too_narrow_for_the_tensor_cores_name_both_uses() -> None:
    def multiply(acc: Any, a: Any, b: Any) -> None:
        plgpu.wgmma(acc, a.at[:, 0:16], b.at[0:16])

    call = product((64, 24), (24, 32), BF16, multiply)
    lines = said(call, normal(64, 24), normal(24, 32), kind=PalladioNotImplementedError)
    assert lines[:3] == [
        "wgmma: an operand of the tensor cores has rows of 32 or 64 bytes, or of a multiple of 128",
        "expected: a last axis of a multiple of 32 bytes",
        "got:      48 bytes of bf16[64,24]",
    ]
    assert "plgpu.wgmma(acc, a.at[:, 0:16], b.at[0:16])" in lines
    assert "the buffer is filled here" in lines
    assert "plgpu.copy_gmem_to_smem(a, a_tile, full)" in lines


def test_an_operand_begins_at_a_multiple_of_8_rows() -> None:
    def multiply(acc: Any, a: Any, b: Any) -> None:
        plgpu.wgmma(acc, a.at[4:68], b)

    call = product((72, 64), (64, 32), BF16, multiply)
    assert said(call, normal(72, 64), normal(64, 32))[:4] == [
        "wgmma: an operand of the tensor cores begins at a multiple of 8 rows of its buffer",
        "expected: a start that 8 divides",
        "got:      4",
        "hint:     pl.multiple_of(start, 8) says so where it cannot be seen",
    ]


def test_an_operand_begins_at_a_column_that_a_descriptor_can_name() -> None:
    def multiply(acc: Any, a: Any, b: Any) -> None:
        plgpu.wgmma(acc, a.at[:, pl.ds(pl.axis_index("part") * 16, 64)], b)

    def body(a: Any, b: Any, out: Any, a_tile: Any, b_tile: Any) -> None:
        pl.run_scoped(lambda acc: multiply(acc, a_tile, b_tile), plgpu.ACC((64, 32)))

    scratch = [plgpu.SMEM((64, 128), BF16), plgpu.SMEM((64, 32), BF16)]
    call = kernel(body, (64, 32), F32, scratch, grid=(2,), grid_names=("part",))
    assert said(call, normal(64, 128), normal(64, 32))[:3] == [
        "wgmma: an operand of the tensor cores begins at a column that is known, or a multiple of a swizzled row",
        "expected: a start that 64 divides",
        "got:      i",
    ]


def test_a_swizzle_divides_the_rows_of_its_buffer() -> None:
    def body(x: Any, out: Any, tile: Any) -> None:
        tile[...] = x[...]
        out[...] = tile[...]

    tile = plgpu.SMEM((8, 48), F32, transforms=(plgpu.SwizzleTransform(128),))
    assert said(kernel(body, (8, 48), F32, [tile]), normal(8, 48, dtype=F32))[:3] == [
        "transforms: the rows of a buffer are not made of whole rows of its swizzle",
        "expected: a multiple of 128 bytes",
        "got:      192 bytes of f32[8,48]",
    ]


def test_two_layouts_that_a_kernel_requests_name_both_casts() -> None:
    def body(x: Any, out: Any) -> None:
        rows = plgpu.layout_cast(x[...], plgpu.Layout.WGMMA)
        vectors = plgpu.layout_cast(x[...], plgpu.Layout.WG_STRIDED(x.shape, 2))
        out[...] = rows + vectors

    lines = said(kernel(body, (64, 32), F32), normal(64, 32, dtype=F32))
    assert lines[:4] == [
        "layout_cast: values that are combined element by element, or carried by a loop, have one layout",
        "expected: WGMMA",
        "got:      WG_STRIDED((64, 32), 2)",
        "hint:     cast one of them to the layout of the other; without a cast, Palladio converts by itself",
    ]
    assert "vectors = plgpu.layout_cast(x[...], plgpu.Layout.WG_STRIDED(x.shape, 2))" in lines
    assert lines.index("the other one is cast here") < lines.index(
        "rows = plgpu.layout_cast(x[...], plgpu.Layout.WGMMA)"
    )


def test_a_cast_meets_the_layout_of_an_accumulator_by_a_conversion() -> None:
    def multiply(acc: Any, a: Any, b: Any) -> None:
        plgpu.wgmma(acc, a, b)
        plgpu.wgmma_wait(0)
        vectors = plgpu.layout_cast(jnp.ones((64, 32), jnp.float32), plgpu.Layout.WG_STRIDED((64, 32), 2))
        acc[...] = acc[...] + vectors

    assert "wgmma" in lowered(product((64, 64), (64, 32), BF16, multiply), normal(64, 64), normal(64, 32)).text


TILES = plgpu.Tiling(((64, 8), (16, 8), (8, 8), (2,)))
LAYOUTS = {
    **{
        name: plgpu.Layout[name]
        for name in ("WGMMA", "WGMMA_8BIT", "WGMMA_UPCAST_2X", "WGMMA_UPCAST_4X", "WGMMA_TRANSPOSED", "TMA_INDICES")
    },
    "TILED": plgpu.Layout.TILED(TILES, (-7,), (-3, -2), -1),
    "LANES": plgpu.Layout.TILED(TILES, (plgpu.Replicated(4),), (-7, -3), -2),
    **{name: plgpu.Layout[name](np.float16) for name in ("MMA_LHS", "MMA_RHS", "MMA_ACC")},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_cast_of_a_layout_changes_no_value(name: str) -> None:
    layout = LAYOUTS[name]

    def body(x: Any, out: Any) -> None:
        value = x[0] if name == "TMA_INDICES" else x[...]
        out[...] = plgpu.layout_cast(value, layout) + 1

    x = normal(64, 128, dtype=F32)
    wanted = x[0] + 1 if name == "TMA_INDICES" else x + 1
    for found in on_twin(kernel(body, wanted.shape, F32), x):
        np.testing.assert_array_equal(found, wanted)


def test_a_transposed_layout_has_64_columns() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = plgpu.layout_cast(x[...], plgpu.Layout.WGMMA_TRANSPOSED)

    x = normal(64, 24, dtype=F32)
    lines = said(kernel(body, x.shape, F32), x, kind=PalladioNotImplementedError)
    rule = "an array of layout WGMMA_TRANSPOSED has a multiple of 8 rows and one of 64 columns on Hopper"
    assert lines[0] == f"new_layout: {rule}"


@pytest.mark.parametrize(
    ("layout", "rule"),
    [
        (
            plgpu.Layout.TILED(plgpu.Tiling(((4, 64, 8), (16, 8), (8, 8), (2,))), (-7,), (-3, -2), -1),
            "an array of layout TILED has a multiple of 4x64x8 elements on Hopper",
        ),
        (
            plgpu.Layout.TILED(TILES, (-6,), (-3, -2), -1),
            "a tiled layout spreads its tiles over the 4 warps and 32 lanes of a warpgroup",
        ),
        (plgpu.Layout.TILED, "a tiled layout spreads its tiles over the 4 warps and 32 lanes of a warpgroup"),
        (plgpu.Layout.MMA_RHS(np.float64), "operands of mma have 8, 16 or 32 bits"),
    ],
    ids=["rank", "warps", "bare", "f64"],
)
def test_other_casts_are_refused(layout: Any, rule: str) -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = plgpu.layout_cast(x[...], layout)

    x = normal(64, 24, dtype=F32)
    assert said(kernel(body, x.shape, F32), x, kind=PalladioNotImplementedError)[0] == f"new_layout: {rule}"


def test_the_sum_takes_32_bytes_of_each_row_at_a_time() -> None:
    def multiply(acc: Any, a: Any, b: Any) -> None:
        plgpu.wgmma(acc, a.at[:, 0:8], b.at[0:8])

    call = product((64, 64), (64, 32), BF16, multiply)
    assert said(call, normal(64, 64), normal(64, 32))[:3] == [
        "wgmma: the tensor cores sum over 32 bytes of each row at a time",
        "expected: a multiple of 16 elements of bf16",
        "got:      8",
    ]


def test_buffers_fit_into_shared_memory() -> None:
    def body(x: Any, out: Any, tile: Any) -> None:
        out[...] = x[...]

    lines = said(kernel(body, (8,), F32, [plgpu.SMEM((256, 256), F32)]), normal(8, dtype=F32))
    assert lines[0] == "the buffers of a block do not fit into its shared memory"
    assert lines[1:4] == [
        "expected: at most 232448 bytes",
        "got:      262144 bytes: tile 262144, and 0 barriers",
        "hint:     take fewer stages or smaller blocks",
    ]


def test_warpgroups_share_the_registers_that_they_begin_with() -> None:
    def body(x: Any, out: Any) -> None:
        group = pl.axis_index("wg")

        @pl.when(group == 0)
        def _() -> None:
            plgpu.set_max_registers(40, action="decrease")

        @pl.when(group != 0)
        def _() -> None:
            plgpu.set_max_registers(240, action="increase")
            out[pl.ds(group, 1)] = x[pl.ds(group, 1)]

    call = kernel(body, (8,), F32, num_threads=3, thread_name="wg")
    assert said(call, normal(8, dtype=F32))[:3] == [
        "set_max_registers: the warpgroups of a block request more registers than there are",
        "expected: at most 504 for a thread of each warpgroup, together: 168 each as the kernel begins",
        "got:      1 * 40 + 2 * 240",
    ]


def test_a_thread_sets_its_registers_once() -> None:
    def body(x: Any, out: Any) -> None:
        plgpu.set_max_registers(40, action="decrease")
        plgpu.set_max_registers(64, action="increase")
        out[...] = x[...]

    assert said(kernel(body, (8,), F32), normal(8, dtype=F32))[:3] == [
        "set_max_registers: threads that run one program set their registers once",
        "expected: 40 as before",
        "got:      64",
    ]


def test_the_hardware_has_16_barriers() -> None:
    def body(x: Any, out: Any, *barriers: Any) -> None:
        for barrier in barriers:
            plgpu.barrier_arrive_and_wait(barrier)
        out[...] = x[...]

    call = kernel(body, (8,), F32, [plgpu.NamedBarrier(num_arrivals=1) for _ in range(15)])
    lines = said(call, normal(8, dtype=F32))
    rule = "a block has 16 barriers of the hardware: one of its own, one for each warpgroup, and named ones"
    assert lines[0].endswith(rule)
    assert lines[1:3] == ["expected: at most 14 named barriers", "got:      15"]


def test_without_the_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(nvrtc, "_folders", list)
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", absent)
    nvrtc._library.cache_clear()
    with pytest.raises(nvrtc.MissingCompilerError) as caught:
        nvrtc.version.__wrapped__()
    lines = str(caught.value).splitlines()
    assert lines[0] == "kernels for Hopper are compiled by NVRTC, which is not installed"
    assert lines[2] == "  hint:     pip install 'palladio[hopper]'"


def test_without_the_disassembler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect.shutil, "which", lambda name: None)
    monkeypatch.setattr(inspect.util, "find_spec", lambda name: None)
    with pytest.raises(PalladioNotImplementedError) as caught:
        inspect.disassembled(b"")
    lines = str(caught.value).splitlines()
    assert lines[0] == "machine code for Hopper is shown by nvdisasm, which is not installed"
    assert lines[1] == "  hint:     it comes with the CUDA toolkit, and with pip install triton"


def test_what_is_not_compiled_says_why_and_what_to_do() -> None:
    def body(x: Any, out: Any) -> None:
        inner = pl.pallas_call(
            lambda a, b: b.__setitem__(..., a[...]), pl.ShapeDtypeStruct((8,), np.float32), grid=(2,)
        )
        out[...] = inner(x[...])

    lines = said(kernel(body, (8,), F32), normal(8, dtype=F32), kind=PalladioNotImplementedError)
    assert lines[0] == (
        "grid_call is not compiled for Hopper: call kernels one after the other, or write the inner one as a loop "
        "(pl.loop)"
    )
    assert "out[...] = inner(x[...])" in lines


def test_dtypes_that_only_keep_numbers_are_refused() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = x[...].astype(np.float32)

    with pytest.raises(PalladioNotImplementedError) as caught:
        call = pl.pallas_call(body, pl.ShapeDtypeStruct((4,), np.float32), interpret="hopper-twin")
        call(np.array([1, 2, 3, -4], ml_dtypes.int4))
    lines = str(caught.value).splitlines()
    assert lines[0] == "no i4 is compiled for Hopper"
    assert "hint:     convert the array before the kernel" in [line.strip() for line in lines]


def test_the_size_of_a_cluster_is_known_when_the_kernel_is_made() -> None:
    def body(x: Any, out: Any) -> None:
        out[pl.axis_index("c")] = x[pl.axis_index("c")]

    options = {"cluster": (np.asarray(2, np.int32),), "cluster_names": ("c",)}
    lines = said(kernel(body, (2, 8), F32, **options), normal(2, 8, dtype=F32), kind=PalladioNotImplementedError)
    assert lines[:4] == [
        "the size of a cluster or block is compiled into a kernel for Hopper",
        "expected: sizes of the grid's axes, if known only at the call",
        "got:      the size of a cluster axis",
        "hint:     make the kernel with the size as an int, cluster=(2,), or one kernel for each size",
    ]


def test_bits_of_a_reference_in_another_width_are_cast_as_values() -> None:
    def body(x: Any, out: Any) -> None:
        out[...] = x.bitcast(np.dtype(np.uint8))[...].astype(np.float32)

    lines = said(kernel(body, (32, 8), F32), normal(8, 8, dtype=F32), kind=PalladioNotImplementedError)
    assert lines[:2] == [
        "a buffer seen as a dtype of another width is not compiled for Hopper",
        "hint:     load it, and cast the values: lax.bitcast_convert_type(ref[...], dtype)",
    ]


def test_a_grid_without_steps_is_an_error_that_the_evaluator_gives_too() -> None:
    def clear(out: Any) -> None:
        out[...] = jnp.zeros(out.shape, np.float32)

    shape, spec = pl.ShapeDtypeStruct((128,), np.float32), pl.BlockSpec((128,), lambda i: (0,))

    def steps(count: Any) -> Any:
        return pl.pallas_call(clear, out_shape=shape, grid=(count,), out_specs=spec)()

    for name in ("reference", "hopper-twin"):
        with pl.executor(name), pytest.raises(PalladioValueError) as caught:
            pl.jit(steps)(np.int32(0))
        assert str(caught.value).splitlines()[:2] == ["a grid size is at least 1", "  got:      [0]"]
