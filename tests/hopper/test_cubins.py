"""Machine code of the library's kernels: no spill, no product that waits for another, the instructions that were meant.

Nothing here needs a GPU: NVRTC compiles for sm_90a anywhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import palladio.gpu as plgpu
import palladio.numpy as jnp
from palladio.hopper.compile import Cubin, compiled
from palladio.hopper.inspect import disassembled, instructions
from palladio.hopper.lowered import Lowered
from palladio.library import hopper
from palladio.library.hopper.attention_backward import measurement
from palladio.library.hopper.model import Product, choose
from palladio.types.types import ShapeDtypeStruct
from tests.hopper.kernels import BF16, kernel, lowered, lowered_all


@pytest.fixture(autouse=True)
def programs_read_back() -> None:
    """In place of the suite's fixture of this name: the tests that run these kernels, in smaller sizes, read them."""


def bf16(*shape: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, BF16)


def sizes(groups: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct((groups,), np.int32)


def array(*shape: int) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(shape, np.float32)


def narrow(dtype: np.dtype, *scales: ShapeDtypeStruct, config: Any = None) -> Lowered:
    """The product of two matrices of 8192 by 8192 with factors."""
    x = ShapeDtypeStruct((8192, 8192), dtype)
    names = ("x_scale", "y_scale")[: len(scales)]
    product = lambda x, y, *given: hopper.matmul(
        x, y, transpose_rhs=True, config=config, **dict(zip(names, given, strict=True))
    )
    return lowered(product, x, x, *scales)


def grouped(dtype: np.dtype, *scales: ShapeDtypeStruct, groups: int = 64, **options: int) -> Lowered:
    """The product of 8192 rows in groups with matrices of 4096 by 4096, with factors or of some of the groups."""
    lhs, rhs = ShapeDtypeStruct((8192, 4096), dtype), ShapeDtypeStruct((32, 4096, 4096), dtype)
    names = ("lhs_scale", "rhs_scale") if scales else ()

    def product(lhs, rhs, sizes, *given):  # type: ignore[no-untyped-def]
        return hopper.gmm(lhs, rhs, sizes, transpose_rhs=True, **dict(zip(names, given, strict=True)), **options)

    return lowered(product, lhs, rhs, sizes(groups), *scales)


WIDE = (16, 4096, 256), (4, 4096, 256), (4, 4096, 256)


@cache
def gradients(width: int = 128) -> list[Lowered]:
    """The kernels of the gradients of causal attention with shared heads."""
    q, k, lse = bf16(16, 4096, width), bf16(4, 4096, width), array(16, 4096)
    return lowered_all(lambda *given: hopper.attention_vjp(*given, causal=True), q, k, k, q, lse, q)


def of_steps(width: int, step: int) -> Lowered:
    """The gradient of keys with the longest steps that `tune` tries."""
    q, k, lse = bf16(16, 4096, width), bf16(4, 4096, width), array(16, 4096)
    config = hopper.AttentionGradientConfig(block_step=step)
    call = lambda *given: hopper.attention_vjp(*given, causal=True, config=config)
    assert config in measurement(q, k, True).configs
    return lowered_all(call, q, k, k, q, lse, q)[2]


@cache
def layer() -> list[Lowered]:
    """The kernels of the expert layer of Qwen3-30B-A3B, of 4096 tokens."""
    given = bf16(4096, 2048), ShapeDtypeStruct((4096, 8), np.int64), array(4096, 8)
    return lowered_all(hopper.moe_mlp, *given, bf16(128, 2048, 1536), bf16(128, 768, 2048))


@cache
def layer_gradients() -> list[Lowered]:
    """The kernels of the gradients of such a layer with the activation and biases of GPT-OSS."""
    wide, h, i, experts = 5760, 2880, 2880, 32
    matrices = bf16(experts, h, wide), bf16(experts, i, h), bf16(experts, wide), bf16(experts, h)
    given = bf16(4096, h), ShapeDtypeStruct((4096, 4), np.int64), array(4096, 4), *matrices

    def gradients(grad, inputs, *arrays):  # type: ignore[no-untyped-def]
        found = hopper.LayerCall(*arrays, "gpt_oss", False, None).gradients(grad, inputs)
        return tuple(found)

    return lowered_all(gradients, bf16(4096, h), bf16(4096 * 4, wide), *given)


E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
ALONE = hopper.MatmulConfig()
FAST = hopper.MatmulConfig(tile_k=128, cluster="m")
KERNELS = {
    "matmul": lambda: lowered(hopper.matmul, bf16(4096, 4096), bf16(4096, 4096)),
    "alone": lambda: lowered(lambda x, y: hopper.matmul(x, y, config=ALONE), bf16(8192, 8192), bf16(8192, 8192)),
    "gmm": lambda: lowered(hopper.gmm, bf16(262144, 6144), bf16(256, 6144, 4096), sizes(256)),
    "gmm of some groups": lambda: grouped(BF16, group_offset=16),
    "gmm, float8, rows": lambda: grouped(E4M3, array(8192), array(32, 4096), groups=32),
    "gmm, float8, blocks": lambda: grouped(E4M3, array(32, 8192), array(32, 32, 32), groups=32),
    "experts, first product": lambda: layer()[1],
    "experts, sum": lambda: layer()[3],
    "experts, hidden": lambda: layer_gradients()[1],
    "experts, inputs": lambda: layer_gradients()[2],
    "experts, matrices": lambda: layer_gradients()[5],
    "experts, bias": lambda: layer_gradients()[8],
    "tgmm": lambda: lowered(hopper.tgmm, bf16(4096, 4096), bf16(4096, 4096), sizes(8)),
    "few rows": lambda: lowered(hopper.matmul, bf16(16, 4096), bf16(4096, 7168)),
    "float8": lambda: narrow(E4M3, array(8192), array(8192)),
    "float8, not promoted": lambda: narrow(E4M3, array(), array(), config=FAST),
    "float8, blocks": lambda: narrow(E4M3, array(64, 8192), array(64, 64)),
    "int8": lambda: narrow(np.dtype(np.int8)),
    "attention": lambda: lowered(hopper.attention, *(bf16(16, 4096, 128) for _ in range(3))),
    "attention, wide": lambda: lowered(hopper.attention, *(bf16(*shape) for shape in WIDE)),
    "gradient of queries": lambda: gradients()[1],
    "gradient of keys": lambda: gradients()[2],
    "gradient of keys, wide": lambda: gradients(256)[2],
    "gradient of keys, longest steps": lambda: of_steps(64, 112),
    "gradient of keys, wide, longest steps": lambda: of_steps(256, 48),
    "softmax": lambda: lowered(hopper.softmax, bf16(8192, 8192)),
    "rms_norm": lambda: lowered(hopper.rms_norm, bf16(8192, 8192), bf16(8192)),
}


OF_ROWS = "softmax", "rms_norm", "experts, sum", "experts, inputs", "experts, bias"


@cache
def cubin(name: str) -> Cubin:
    return compiled(KERNELS[name]())


@cache
def counts(name: str) -> Counter[str]:
    return instructions(disassembled(cubin(name).code))


def matching(name: str, start: str) -> int:
    return sum(count for instruction, count in counts(name).items() if instruction.startswith(start))


@pytest.mark.parametrize("name", KERNELS)
def test_no_register_goes_to_memory(name: str) -> None:
    found = cubin(name)
    assert (found.spills, found.stack) == (0, 0)
    assert matching(name, "LDL") + matching(name, "STL") == 0


@pytest.mark.parametrize("name", KERNELS)
def test_the_compiler_warns_of_nothing(name: str) -> None:
    # Serialised products are C7511 to C7515, an injected wait is C7517, an ignored setmaxnreg C7508.
    assert cubin(name).warnings == ()


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in OF_ROWS])
def test_the_registers_are_those_that_three_warpgroups_may_begin_with(name: str) -> None:
    assert cubin(name).registers == 168
    assert matching(name, "USETMAXREG") >= 2


PRODUCTS = {"matmul": "HGMMA", "alone": "HGMMA", "gmm": "HGMMA"}
PRODUCTS |= {"experts, first product": "HGMMA", "experts, hidden": "HGMMA"}
PRODUCTS |= {"float8": "QGMMA", "float8, not promoted": "QGMMA", "float8, blocks": "QGMMA", "int8": "IGMMA"}


@pytest.mark.parametrize(("name", "instruction"), PRODUCTS.items())
def test_a_step_is_four_products(name: str, instruction: str) -> None:
    assert matching(name, instruction) == 4
    assert matching(name, "WARPGROUP.ARRIVE") == 1


@pytest.mark.parametrize(
    ("name", "additions"),
    [("float8", {"FADD": 96}), ("float8, blocks", {"FFMA": 64}), ("float8, not promoted", {}), ("alone", {})],
)
def test_sums_of_floats_of_8_bits_leave_the_tensor_cores(name: str, additions: dict[str, int]) -> None:
    # Each sum of a thread is added to once, after 128 of k; by its factor if blocks have one.
    assert {each: matching(name, each) for each in ("FADD", "FFMA") if matching(name, each)} == additions
    found = choose(Product(8192, 8192, 8192, E4M3, BF16))
    assert found.tile_k * found.promote == 128


def test_the_steps_of_few_rows_are_split_between_the_compute_warpgroups() -> None:
    # Four products of a step of 64 of k each, in both warpgroups' code; one of them adds the other's sum.
    assert matching("few rows", "HGMMA") == 2 * 4
    assert matching("few rows", "FADD") == 64 * 64 // 128
    assert (matching("few rows", "STS.64"), matching("few rows", "LDS.64")) == (16, 16)


def test_the_compute_warpgroups_of_attention_run_the_same_code() -> None:
    # Per step eight products of queries and keys, and eight of weights and values; also the first scores, and the last
    # weights, outside of the loop.
    assert matching("attention", "HGMMA") == 2 * 2 * 8


def test_exponentials_of_attention_run_while_a_product_is_in_flight() -> None:
    # In a step, between the wait for the scores and the one for the weighted values; weights are packed after that.
    text = disassembled(cubin("attention").code)
    step = re.search(r"DEPBAR\.LE gsb0, 0x1 (.*?)HGMMA", text, re.DOTALL)
    assert step is not None
    during, after = step[1].split("DEPBAR.LE gsb0, 0x0")
    assert during.count("MUFU.EX2") == 64 + 2
    assert (during.count("F2FP"), after.count("F2FP")) == (0, 32)


def test_the_gradients_of_matrices_have_the_steps_of_tgmm() -> None:
    # Steps of whole tiles of rows, and those at the edge of a group, which mask rows.
    for name in ("tgmm", "experts, matrices"):
        assert matching(name, "HGMMA") == 2 * 4
        assert matching(name, "WARPGROUP.ARRIVE") == 2


def test_the_copies_of_a_step_are_one_of_x_and_four_of_y() -> None:
    assert matching("matmul", "UTMALDG.2D") == 5
    assert matching("matmul", "UTMASTG.2D") == 4
    assert matching("matmul", "STSM.16") == 16


@pytest.mark.parametrize(("name", "shared", "own"), [("matmul", 4, 1), ("gmm", 1, 4), ("tgmm", 4, 1), ("alone", 0, 5)])
def test_blocks_of_a_cluster_load_for_each_other(name: str, shared: int, own: int) -> None:
    assert counts(name)["UTMALDG.2D.MULTICAST"] + counts(name)["UTMALDG.3D.MULTICAST"] == shared
    assert counts(name)["UTMALDG.2D"] + counts(name)["UTMALDG.3D"] == own


def test_one_thread_starts_the_copies_without_a_vote() -> None:
    assert matching("matmul", "VOTE") == 0


@pytest.mark.parametrize(("name", "sums"), [("gmm", 4 + 4), ("tgmm", 4 + 2)])
def test_each_sum_of_the_sizes_of_groups_is_one_instruction(name: str, sums: int) -> None:
    # Of the compute warpgroups and of the memory warpgroup.
    assert matching(name, "REDUX") == sums
    assert matching(name, "SHFL.BFLY") == 0


@pytest.mark.parametrize(("name", "loads"), [("softmax", 8), ("rms_norm", 16)])
def test_rows_are_moved_in_vectors_of_16_bytes(name: str, loads: int) -> None:
    assert sum(count for each, count in counts(name).items() if each.startswith("LDG") and ".128" in each) == loads
    assert matching(name, "LDG") == loads
    assert matching(name, "STG.E.128") == 8


def test_a_product_of_what_threads_have_written_makes_ptxas_wait_for_nothing() -> None:
    def body(x: Any, y: Any, out: Any, a: Any, b: Any, full: Any, acc: Any) -> None:
        plgpu.copy_gmem_to_smem(x, a, full)
        plgpu.copy_gmem_to_smem(y, b, full)
        plgpu.barrier_wait(full)
        acc[...] = jnp.full((128, 16), 2, jnp.float32)
        plgpu.wgmma(acc, a, b)
        plgpu.wgmma(acc, a, b)
        out[...] = acc[...]

    tiles = [plgpu.SMEM((128, 64), BF16), plgpu.SMEM((64, 16), BF16)]
    scratch = [*tiles, plgpu.Barrier(num_arrivals=2), plgpu.ACC((128, 16))]
    made = lowered(kernel(body, (128, 16), np.float32, scratch), bf16(128, 64), bf16(64, 16))
    assert compiled(made).warnings == ()


def test_machine_code_has_the_lines_of_the_kernel() -> None:
    def body(x: Any, y: Any, out: Any, a: Any, b: Any, full: Any, acc: Any) -> None:
        plgpu.copy_gmem_to_smem(x, a, full)
        plgpu.copy_gmem_to_smem(y, b, full)
        plgpu.barrier_wait(full)
        plgpu.wgmma(acc, a, b)
        plgpu.wgmma_wait(0)
        out[...] = acc[...]

    tiles = [plgpu.SMEM((128, 64), BF16), plgpu.SMEM((64, 16), BF16)]
    scratch = [*tiles, plgpu.Barrier(num_arrivals=2), plgpu.ACC((128, 16))]
    made = lowered(kernel(body, (128, 16), np.float32, scratch), bf16(128, 64), bf16(64, 16))
    first = body.__code__.co_firstlineno
    places, line = defaultdict(set), 0
    for text in disassembled(compiled(made).code).splitlines():
        if found := re.search(r'## File "(.*)", line (\d+)$', text):  # after those of primitives that are inlined there
            line = int(found[2]) - first if found[1] == __file__ else 0
        elif found := re.search(r"ELECT|UTMALDG|SYNCS\.PHASECHK", text):
            places[found[0]].add(line)
    # NVRTC puts products among the lines around them, since it looks ahead.
    assert places == {"ELECT": {1}, "UTMALDG": {1, 2}, "SYNCS.PHASECHK": {3}}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the libraries of a process from /proc")
def test_the_compiler_comes_with_its_builtins() -> None:
    """NVRTC 13.0, which PyTorch's wheels for CUDA 13 pin, does not find them in its own folder."""
    code = "from palladio.hopper import compile\ncompile.version()\nprint(open('/proc/self/maps').read())"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "libnvrtc-builtins" in loaded
