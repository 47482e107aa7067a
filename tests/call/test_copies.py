"""Whatever a user can hold survives `copy.deepcopy` and `pickle`, and does the same afterwards."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax, library
from palladio.types.types import MEMORY_SPACES

X = np.arange(6, dtype=np.float32).reshape(2, 3)
OUT = pl.ShapeDtypeStruct(X.shape, X.dtype)
SPEC = pl.BlockSpec((1, 3), lambda i: (i, 0))


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


WAYS = [copy.copy, copy.deepcopy, pickled]


def doubled(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 2


def first_row(i: Any) -> Any:
    return i, 0


@pl.jit
def decorated(x: Any) -> Any:
    return x * 2


def plain(x: Any, factor: int) -> Any:
    return x * factor


def in_shared_memory(x_ref: Any, o_ref: Any, kept_ref: Any) -> None:
    kept_ref[...] = x_ref[...] * 2
    o_ref[...] = kept_ref[...]


MESH = plgpu.Mesh((1,), ("block",))
PREFETCHED = pltpu.PrefetchScalarGridSpec(
    0, grid=(2,), in_specs=[pl.BlockSpec((1, 3), first_row)], out_specs=pl.BlockSpec((1, 3), first_row)
)

CALLS: dict[str, Callable[[], Any]] = {
    "pallas_call": lambda: pl.pallas_call(doubled, OUT),
    "pallas_call of a grid": lambda: pl.pallas_call(doubled, OUT, grid_spec=PREFETCHED),
    "pallas_call with scratch": lambda: pl.pallas_call(
        in_shared_memory, OUT, scratch_shapes=[pltpu.VMEM((2, 3), np.float32)]
    ),
    "gpu kernel": lambda: plgpu.kernel(in_shared_memory, OUT, scratch_types=[plgpu.SMEM((2, 3), np.float32)]),
    "mpmd_map": lambda: pl.mpmd_map([(MESH, doubled)], out_types=OUT),
    "decorated": lambda: decorated,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CALLS)
def test_a_copied_call_does_the_same(name: str, way: Callable[[Any], Any]) -> None:
    call = CALLS[name]()
    for used in (call, way(call)):
        np.testing.assert_array_equal(used(X), X * 2)
    np.testing.assert_array_equal(way(call)(X), X * 2)  # it has been called, so it remembers what it prepared


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_copied_staged_function_does_the_same(way: Callable[[Any], Any]) -> None:
    call = pl.jit(plain, static_argnames="factor")
    call(X, factor=3)
    np.testing.assert_array_equal(way(call)(X, factor=2), X * 2)


def summed(x: Any) -> Any:
    return pl.pallas_call(doubled, OUT)(x) + jnp.sum(jnp.sort(x, axis=1))


def multiplied(x: Any) -> Any:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] @ x_ref[...].T

    return pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 2), np.float32))(x)


def launched(x: Any) -> Any:
    return plgpu.kernel(in_shared_memory, OUT, scratch_types=[plgpu.SMEM((2, 3), np.float32)])(x)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("executor", ["reference", "simulator", "cpu"])
@pytest.mark.parametrize("function", [summed, multiplied, launched])
def test_a_copied_function_that_was_staged_ahead_does_the_same(
    function: Callable[..., Any], executor: str, way: Callable[[Any], Any]
) -> None:
    staged = pl.jit(function, interpret=executor).ahead(X)
    np.testing.assert_array_equal(way(staged)(X), staged(X))


@pytest.mark.parametrize("way", [copy.deepcopy, pickled])
def test_a_module_that_holds_a_call_is_copied(way: Callable[[Any], Any]) -> None:
    model = torch.nn.Linear(3, 3)
    model.call = pl.pallas_call(doubled, OUT)
    x = torch.from_numpy(X)
    torch.testing.assert_close(way(model).call(x), x * 2)


def test_a_call_is_sent_to_another_process() -> None:
    text = "import pickle, sys, numpy as np; call = pickle.load(sys.stdin.buffer)"
    text += "; print(call(np.ones((2, 4), np.float32)).tolist())"
    kernel = sys.modules["palladio.library.softmax"]._softmax_kernel  # type: ignore[attr-defined]
    sent = pickle.dumps(pl.pallas_call(kernel, pl.ShapeDtypeStruct((2, 4), np.float32)))
    found = subprocess.run([sys.executable, "-c", text], input=sent, capture_output=True, check=True, timeout=60)
    assert found.stdout.decode().strip() == str([[0.25] * 4] * 2)


HELD = {
    **{f"space {name}": space for name, space in MEMORY_SPACES.items()},
    "no_block_spec": pl.no_block_spec,
    "dtype": jnp.bfloat16,
}
"""What is compared by identity."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", HELD)
def test_what_is_compared_by_identity_stays_itself(name: str, way: Callable[[Any], Any]) -> None:
    assert way(HELD[name]) is HELD[name]


RECORDS = [
    pl.squeezed,
    pl.Element(4, (1, 2)),
    pl.BoundedSlice(4),
    pl.Indirect(4),
    pl.Buffered(2),
    OUT,
    pl.CostEstimate(1, 2, 3),
    MESH,
    pltpu.VMEM((2,), np.float32),
    pltpu.SemaphoreType.DMA,
    pltpu.InterpretParams(detect_races=True),
    plgpu.Barrier(num_arrivals=2),
    plgpu.TilingTransform((8, 64)),
    plgpu.SwizzleTransform(128),
    plgpu.Layout.WGMMA,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("record", RECORDS, ids=repr)
def test_a_copied_record_is_equal(record: Any, way: Callable[[Any], Any]) -> None:
    assert way(record) == record


@pytest.mark.parametrize("way", WAYS)
def test_copied_specs_cut_arrays_as_before(way: Callable[[Any], Any]) -> None:
    spec = way(pl.BlockSpec((1, 3), first_row))
    call = pl.pallas_call(doubled, OUT, grid=(2,), in_specs=[spec], out_specs=way(spec))
    np.testing.assert_array_equal(call(X), X * 2)
    params = way(pltpu.CompilerParams(dimension_semantics=("parallel",)))
    assert params.dimension_semantics == ("parallel",)
    assert way(plgpu.BlockSpec((1, 3), first_row, delay_release=1)).delay_release == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_copied_program_prints_the_same(way: Callable[[Any], Any]) -> None:
    from palladio.ir.text import print_program

    program = pl.pallas_call(doubled, OUT).program(X)
    assert print_program(way(program)) == print_program(program)


@pytest.mark.parametrize("way", WAYS)
def test_a_copied_error_says_the_same(way: Callable[[Any], Any]) -> None:
    with pytest.raises(pl.PalladioTypeError) as caught:
        pl.pallas_call(doubled, OUT)("text")
    assert str(way(caught.value)) == str(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_a_copied_report_holds_its_findings(way: Callable[[Any], Any]) -> None:
    def racing(o_ref: Any) -> None:
        o_ref[...] = jnp.full((2, 3), pl.axis_index("block"), np.float32)

    report = pl.check(plgpu.kernel(racing, OUT, grid=(2,), grid_names=("block",)))
    assert report.findings
    assert str(way(report)) == str(report)
    assert way(report).findings == report.findings


@pytest.mark.parametrize("module", [pl, plgpu, pltpu, jnp, lax, library], ids=lambda module: module.__name__)
def test_every_public_constant_is_found_again(module: Any) -> None:
    constants = {name: getattr(module, name) for name in module.__all__}
    for name, value in constants.items():
        if not callable(value) and not isinstance(value, type(module)):
            assert repr(pickled(value)) == repr(value), name
