"""The names of Pallas' GPU namespace: each is there, and one that cannot be used says why."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.call.refused import REFUSED
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from tests.dialect.kernels import kernel

NEVER_FAILS = {"enable_hardware_limits"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_name_can_be_imported_and_says_why_when_it_is_used(name: str) -> None:
    refused = getattr(plgpu, name)
    for use in (refused, lambda: refused.SCALES):
        with pytest.raises(pl.PalladioNotImplementedError) as caught:
            use()
        text = str(caught.value)
        assert text.startswith(f"plgpu.{name} ")
        assert "hint:" in text and "test_names.py" in text


def test_an_unknown_name_is_no_attribute() -> None:
    assert not hasattr(plgpu, "wgmma_of_tomorrow")
    with pytest.raises(AttributeError, match=r"palladio\.gpu has no 'wgmma_of_tomorrow'"):
        plgpu.wgmma_of_tomorrow


def test_the_kernel_before_this_one_has_ended() -> None:
    def body(o_ref: Any) -> None:
        plgpu.griddepcontrol_wait()
        plgpu.griddepcontrol_launch_dependents()
        o_ref[...] = jnp.int32(3)

    assert kernel(body)() == 3


def test_compiler_parameters_have_the_defaults_of_pallas() -> None:
    params = plgpu.CompilerParams()
    assert not params.approx_math and params.dimension_semantics is None and params.max_concurrent_steps == 1
    assert params.reduction_scratch_bytes == 2048
    assert params.lowering_semantics is plgpu.LoweringSemantics.Warpgroup
    assert params.profile_trace_scope is plgpu.TraceScope.WARPGROUP


def test_compiler_parameters_change_no_result() -> None:
    params = plgpu.CompilerParams(
        approx_math=True,
        dimension_semantics=["parallel", "sequential"],
        max_concurrent_steps=4,
        unsafe_no_auto_barriers=True,
        lowering_semantics=plgpu.LoweringSemantics.Lane,
        profile_space=8,
        profile_dir="p",
    )
    assert params.dimension_semantics == ("parallel", "sequential")
    assert pickle.loads(pickle.dumps(params)) == params
    run = kernel(lambda o_ref: o_ref.set(jnp.int32(2)), compiler_params=params)
    assert run() == 2


def test_a_launch_keeps_the_compiler_parameters_that_differ_from_their_defaults() -> None:
    params = plgpu.CompilerParams(approx_math=True, lowering_semantics=plgpu.LoweringSemantics.Lane)
    run = kernel(lambda o_ref: o_ref.set(jnp.int32(2)), compiler_params=params)
    (eqn,) = stage(lambda: (run(),), [], wrap, name="call").program.eqns
    assert eqn.launch.advice == (("approx_math", True), ("lowering_semantics", "lane"))


def test_compiler_parameters_of_another_kind_are_refused() -> None:
    with pytest.raises(pl.PalladioTypeError, match="these are not compiler parameters"):
        kernel(lambda o_ref: None, compiler_params={"approx_math": True})


def test_memory_spaces_are_attributes_of_their_kind() -> None:
    assert plgpu.MemorySpace.SMEM is plgpu.SMEM and plgpu.GPUMemorySpace.GMEM is plgpu.GMEM
    assert isinstance(plgpu.REGS, plgpu.MemorySpace) and isinstance(plgpu.REGS, pl.MemorySpace)
    assert plgpu.MemorySpace.SMEM((4,), np.float32) == plgpu.SMEM((4,), np.float32)


def test_earlier_spellings_stay() -> None:
    assert plgpu.GPUCompilerParams is plgpu.CompilerParams


def test_shapes_are_described_as_everywhere() -> None:
    assert plgpu.ShapeDtypeStruct is pl.ShapeDtypeStruct
    assert isinstance(plgpu.SwizzleTransform(64), plgpu.Transform)
    assert plgpu.ShapeDtypeStruct((2,), np.float32).dtype == np.float32


FUNCTIONS = [
    name
    for name in plgpu.__all__
    if name not in REFUSED and inspect.isfunction(getattr(plgpu, name)) and name not in NEVER_FAILS
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_says_what_it_raises(name: str) -> None:
    assert "\nRaises:" in (inspect.getdoc(getattr(plgpu, name)) or "")
