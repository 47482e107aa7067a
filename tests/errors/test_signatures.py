"""Calls that the parameters of a public function do not take."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

import palladio as pl
import palladio.gpu as plgpu
import palladio.tpu as pltpu
from palladio import library
from tests.errors.shown import OUT, X, copy, shows


def test_a_misspelt_option() -> None:
    with shows(
        TypeError,
        """
        GridSpec has no parameter 'in_spec'
          expected: grid, in_specs, out_specs, scratch_shapes
          got:      in_spec=None
          hint:     did you mean in_specs?
          test_signatures.py:N, in test_a_misspelt_option
            pl.GridSpec((1,), in_spec=None)  # type: ignore[call-arg]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.GridSpec((1,), in_spec=None)  # type: ignore[call-arg]


def test_an_argument_that_is_missing() -> None:
    with shows(
        TypeError,
        """
        PrefetchScalarGridSpec takes other arguments than it is called with
          expected: PrefetchScalarGridSpec(num_scalar_prefetch, grid, in_specs, out_specs, scratch_shapes)
          got:      missing a required argument: 'num_scalar_prefetch'
          test_signatures.py:N, in test_an_argument_that_is_missing
            pltpu.PrefetchScalarGridSpec(grid=(1,))  # type: ignore[call-arg]
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.PrefetchScalarGridSpec(grid=(1,))  # type: ignore[call-arg]


def test_an_option_that_a_call_does_not_have() -> None:
    with shows(
        TypeError,
        """
        this call has no parameter 'output'
          expected: out
          got:      output=None
          hint:     did you mean out?
          test_signatures.py:N, in test_an_option_that_a_call_does_not_have
            pl.pallas_call(copy, OUT)(X, output=None)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(copy, OUT)(X, output=None)


def test_an_option_of_other_compilers_that_is_nearly_one_of_ours() -> None:
    assert pltpu.CompilerParams(vmem_limit_bytes=1 << 20).options == {"vmem_limit_bytes": 1 << 20}
    with shows(
        TypeError,
        """
        dimension_semantic: this is not a parameter; one with a similar name has an effect
          hint:     did you mean dimension_semantics?
          test_signatures.py:N, in test_an_option_of_other_compilers_that_is_nearly_one_of_ours
            pltpu.CompilerParams(dimension_semantic=("parallel",))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pltpu.CompilerParams(dimension_semantic=("parallel",))


ENTRIES: list[Any] = [
    *(
        pl.pallas_call,
        pl.kernel,
        pl.mpmd_map,
        pl.core_map,
        pl.jit,
        pl.check,
        pl.BlockSpec,
        pl.Buffered,
        pl.CostEstimate,
    ),
    *(plgpu.kernel, plgpu.Mesh, plgpu.WarpMesh, plgpu.BlockSpec, plgpu.CompilerParams, plgpu.InterpretGPUParams),
    *(plgpu.ACC, plgpu.Barrier, plgpu.ClusterBarrier, plgpu.NamedBarrier),
    *(plgpu.emit_pipeline, plgpu.emit_pipeline_warp_specialized, pltpu.emit_pipeline, pltpu.InterpretParams),
    *(pltpu.PrefetchScalarGridSpec, pltpu.TensorCoreMesh, pltpu.ScalarSubcoreMesh, pltpu.VectorSubcoreMesh),
    *(library.matmul, library.softmax, library.rms_norm, library.attention, library.gmm, library.tgmm, library.gmm_vjp),
    *(library.gmm_tiling, library.tgmm_tiling, library.matmul_tiling, library.attention_blocks, library.tune),
    *(library.make_group_metadata, library.hopper.matmul, library.hopper.gmm, library.hopper.attention),
    *(library.hopper.MatmulConfig, library.hopper.AttentionConfig),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.__module__}.{entry.__name__}")
def test_a_misspelt_option_is_found_at_every_entry_and_its_signature_stays(entry: Any) -> None:
    names = [name for name, each in inspect.signature(entry).parameters.items() if each.kind is not each.VAR_KEYWORD]
    misspelt = names[-1] + "_"
    with pytest.raises(pl.PalladioTypeError, match=rf"^{entry.__name__} has no parameter '{misspelt}'") as caught:
        entry(**{misspelt: 1})
    assert f"did you mean {names[-1]}?" in str(caught.value) and "test_signatures.py" in str(caught.value)
    assert entry.__doc__ or sys.flags.optimize > 1


def test_an_error_from_inside_of_an_entry_stays_what_it_is() -> None:
    def progress(*args: Any) -> None:
        raise TypeError("of the user")

    with pytest.raises(TypeError, match=r"^of the user$"):
        pl.check(lambda: None, progress=progress)
