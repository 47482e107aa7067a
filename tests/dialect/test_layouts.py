"""Layouts of registers and of shared memory: they change no value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.ir.core import walk
from tests.dialect.kernels import kernel

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def of_input(function: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """What a function of the reference to X gives."""

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = function(x_ref)

    return kernel(body, shape, dtype)


def asked_for(run: Any, *args: Any) -> list[str]:
    """The layouts that a kernel requests."""
    return [str(eqn.layout) for eqn in walk(run.program(*args)) if eqn.op.name == "layout_cast"]


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (plgpu.Layout.WGMMA, "WGMMA"),
        (plgpu.Layout.WG_SPLAT, "WG_SPLAT"),
        (plgpu.Layout.WG_STRIDED((3, 4), vec_size=2), "WG_STRIDED((3, 4), 2)"),
        (plgpu.Layout.TILED(plgpu.Tiling([(64, 8), [16, 8]]), (0,), plgpu.Replicated(2), 1), None),
    ],
)
def test_a_layout_is_requested_and_changes_nothing(layout: Any, text: str | None) -> None:
    run = of_input(lambda ref: plgpu.layout_cast(ref[...], layout), (3, 4))
    assert np.array_equal(run(X), X)
    assert asked_for(run, X) == [text or "TILED(Tiling(tiles=((64, 8), (16, 8))), (0,), Replicated(times=2), 1)"]


def test_a_reduced_layout_has_fewer_axes() -> None:
    row = plgpu.Layout.WGMMA.reduce(1)
    run = of_input(lambda ref: plgpu.layout_cast(ref[...].sum(axis=1), row), (3,))
    assert asked_for(run, X) == ["WGMMA.reduce(1)"]
    assert str(row.reduce((0,))) == "WGMMA.reduce(1).reduce(0)"


def test_a_weak_scalar_stays_weak_in_a_layout() -> None:
    run = of_input(lambda ref: ref[...] + plgpu.layout_cast(2.0, plgpu.Layout.WG_SPLAT), (3, 4))
    assert np.array_equal(run(X), X + 2)


def test_load_takes_a_layout() -> None:
    run = of_input(lambda ref: plgpu.load(ref, layout=plgpu.Layout.WGMMA, optimized=False), (3, 4))
    assert np.array_equal(run(X), X)
    assert asked_for(run, X) == ["WGMMA"]


def test_load_takes_masks_as_before() -> None:
    run = of_input(lambda ref: plgpu.load(ref, (slice(0, 1),), mask=jnp.arange(4) % 2 == 0, other=-1.0), (1, 4))
    assert run(X).tolist() == [[0, -1, 2, -1]]


def test_store_writes() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        plgpu.store(o_ref, x_ref[...] * 2, optimized=False)

    assert np.array_equal(kernel(body, (3, 4), np.float32)(X), X * 2)


@pytest.mark.parametrize("dimension", [0, 1, -1])
def test_an_iota_counts_along_one_axis(dimension: int) -> None:
    layout = plgpu.Layout.WGMMA
    run = of_input(lambda ref: plgpu.broadcasted_iota(np.float32, (3, 4), dimension, layout=layout), (3, 4))
    wanted = np.indices((3, 4))[dimension]
    assert np.array_equal(run(X), wanted)
    assert asked_for(run, X) == ["WGMMA"]


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("options", [{}, {"axis": 1}, {"axis": (0, 1)}, {"axis": 0, "keepdims": True}], ids=str)
def test_reductions_are_those_of_numpy(name: str, options: dict[str, Any]) -> None:
    wanted = getattr(np, name)(X, **options)
    run = of_input(lambda ref: getattr(plgpu, name)(ref[...], **options, accumulator_ilp=2), wanted.shape)
    assert np.allclose(run(X), wanted)


@pytest.mark.parametrize(("bits", "swizzle"), [(1024, 128), (2048, 128), (512, 64), (768, 32), (128, 16), (384, 16)])
def test_the_widest_swizzle_that_divides_the_last_axis_is_found(bits: int, swizzle: int) -> None:
    assert plgpu.find_swizzle(bits) == swizzle


def test_transpose_ref_is_an_older_spelling_of_transpose() -> None:
    run = of_input(lambda ref: plgpu.transpose_ref(ref, (1, 0))[...], (4, 3))
    assert np.array_equal(run(X), X.T)


def test_bits_and_swizzles_may_be_scalars_of_numpy() -> None:
    assert plgpu.find_swizzle(np.int64(1024)) == 128
    assert plgpu.SwizzleTransform(np.int64(64)) == plgpu.SwizzleTransform(64)


def test_a_swizzle_that_is_an_array_is_refused_as_any_other() -> None:
    with pytest.raises(pl.PalladioValueError, match="swizzles rows of 32, 64 or 128 bytes"):
        plgpu.SwizzleTransform(np.ones((2, 2)))


def test_a_tiling_shows_the_tiles_as_axes_and_a_swizzle_nothing() -> None:
    swizzle = plgpu.SwizzleTransform(32)
    tiles = (plgpu.TilingTransform((3, 2)), swizzle)

    def body(x_ref: Any, o_ref: Any, buffer: Any) -> None:
        buffer[...] = x_ref[...]
        o_ref[...] = plgpu.transform_ref(buffer, tiles)[...]

    scratch = [plgpu.SMEM((3, 4), np.float32, transforms=(swizzle,))]
    run = kernel(body, (1, 2, 3, 2), np.float32, scratch_types=scratch)
    assert np.array_equal(run(X), X.reshape(1, 3, 2, 2).transpose(0, 2, 1, 3))


def test_a_tile_of_the_last_axis_alone_keeps_the_others() -> None:
    run = of_input(lambda ref: plgpu.transform_ref(ref, plgpu.TilingTransform((2,)))[...], (3, 2, 2))
    assert np.array_equal(run(X), X.reshape(3, 2, 2))


def test_writing_through_tiles_writes_to_the_buffer() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        plgpu.transform_ref(o_ref, plgpu.TilingTransform((1, 2)))[...] = jnp.arange(12, dtype=np.int32).reshape(
            3, 2, 1, 2
        )

    assert kernel(body, (3, 4))(X).tolist() == np.arange(12).reshape(3, 4).tolist()
