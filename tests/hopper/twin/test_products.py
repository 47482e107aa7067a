"""Products of the tensor cores, from the tables of the PTX ISA: operands in every layout, fragments of every type.

Section names are those of "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". The numbers are small
integers, so that sums are exact and results are compared to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest

from palladio.hopper.wgmma import Wgmma
from tests.hopper.twin.kernels import array, changed, failure, kernel, number, output, outputs

ROWS, DEPTH_BYTES = 64, 32
RIGHT_AT = IMAGE = 65536
"""Bytes of the image of each operand in shared memory: the right one follows the left one."""

DTYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "f32": np.dtype(np.float32),
    "s32": np.dtype(np.int32),
}

BF16 = Wgmma(128, "f32", "bf16", "bf16")
IN_SHARED = [
    BF16,
    Wgmma(8, "f32", "f16", "f16"),
    Wgmma(256, "f32", "f16", "f16"),
    Wgmma(16, "f16", "f16", "f16"),
    Wgmma(24, "f32", "tf32", "tf32"),
    *(Wgmma(32, "f32", left, right) for left in ("e4m3", "e5m2") for right in ("e4m3", "e5m2")),
    Wgmma(8, "f16", "e4m3", "e5m2"),
    *(Wgmma(48, "s32", left, right) for left in ("s8", "u8") for right in ("s8", "u8")),
]
IN_REGISTERS = [
    Wgmma(64, "f32", "bf16", "bf16", registers=True),
    Wgmma(16, "f16", "f16", "f16", registers=True),
    Wgmma(8, "f32", "tf32", "tf32", registers=True),
    Wgmma(16, "f32", "e5m2", "e4m3", registers=True),
    Wgmma(24, "s32", "u8", "s8", registers=True),
]


def _call(product: Wgmma, left: int, right: int) -> str:
    """One branch of the kernel: registers in, the product, registers out."""
    flags = [str(right)] if product.registers else [str(left), str(right)]
    template = f"<{', '.join(flags)}>" if product.transposes else ""
    operand = "a[0], a[1], a[2], a[3]" if product.registers else "left"
    element, count = product.element, product.accumulators
    return f"""{{
    {element} acc[{count}];
    for (int r = 0; r < {count}; ++r) acc[r] = *({element}*)&c[thread * 128 + r];
    pal::wgmma_fence();
    pal::{product.name}{template}(acc, {operand}, right, accumulate);
    pal::wgmma_commit();
    pal::wgmma_wait<0>();
    for (int r = 0; r < {count}; ++r) pal::store_global(d + thread * 128 + r, *(u32*)&acc[r]);
  }}"""


CASES = [(product, 0, 0) for product in (*IN_SHARED, *IN_REGISTERS)]
CASES += [(product, left, right) for left, right in ((0, 1), (1, 0), (1, 1)) for product in (BF16, IN_SHARED[3])]
CASES += [(IN_REGISTERS[0], 0, 1)]

BODY = """
  const u32 thread = pal::thread_index();
  const u32 base = pal::shared_base();
  for (u32 k = 16 * thread; k < 131072; k += 2048)
    pal::store_shared(base + k, *(const u32x4*)&image[k]);
  u32 a[4];
  for (int r = 0; r < 4; ++r) a[r] = fragments[4 * thread + r];
  pal::fence_async();
  pal::sync_block();
  const u64 left = pal::descriptor(base + left_at, left_leading, left_stride, left_mode);
  const u64 right = pal::descriptor(base + right_at, right_leading, right_stride, right_mode);
""" + "\n".join(f"  if (which == {n}) {_call(*case)}" for n, case in enumerate(CASES))

OPERAND_FIELDS = [f"{side}_{field}" for side in ("left", "right") for field in ("at", "leading", "stride", "mode")]
PRODUCT = kernel(
    BODY,
    [
        array("image", np.uint8, IMAGE * 2),
        array("fragments", np.uint32, ROWS * 8),
        array("c", np.uint32, 128 * 128),
        number("which"),
        number("accumulate"),
        *(number(name, np.uint32) for name in OPERAND_FIELDS),
        output("d", np.uint32, 128 * 128),
    ],
    shared=2 * IMAGE,
    products=[*IN_SHARED, *IN_REGISTERS],
)


# ---- The tables of the PTX ISA -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """The bytes of an operand in shared memory, and its descriptor: start, leading and stride byte offset, mode."""

    data: np.ndarray
    start: int
    leading: int
    stride: int
    mode: int


MODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Section "Matrix Descriptor Format": the swizzling modes by their widths."""


def swizzle_rows(block: np.ndarray) -> np.ndarray:
    """Section "Swizzling Modes": a block of 8 rows as wide as the mode; its 16-byte pieces change places.

    The pattern of 128 bytes exchanges by the row, that of 64 by pairs of rows, that of 32 by fours.
    """
    width = block.shape[1]
    lines_per_row = 128 // width
    result = np.empty_like(block)
    for row in range(8):
        for piece in range(width // 16):
            to = piece ^ (row // lines_per_row % (width // 16))
            result[row, 16 * to : 16 * to + 16] = block[row, 16 * piece : 16 * piece + 16]
    return result


def image_k_major(matrix: np.ndarray, width: int, step: int) -> Image:
    """Section "Strides", K-major. `matrix` is [mn, k]; the descriptor begins at its step-th 32 bytes along k."""
    data = noise()
    rows = matrix.view(np.uint8)
    if width == 0:
        leading, stride = 144, 432  # core matrices of 8 rows of 16 bytes: the next along k, the next along mn
        for i in range(rows.shape[0] // 8):
            for j in range(2):
                core = rows[8 * i : 8 * i + 8, 32 * step + 16 * j : 32 * step + 16 * j + 16]
                data[i * stride + j * leading :][:128] = core.ravel()
        return Image(data, 0, leading, stride, 0)
    stride = 8 * width * 2  # room between the patterns of 8 rows
    for i in range(rows.shape[0] // 8):
        data[i * stride :][: 8 * width] = swizzle_rows(rows[8 * i : 8 * i + 8, :width]).ravel()
    return Image(data, 32 * step, 16, stride, MODES[width])


def image_mn_major(matrix: np.ndarray, width: int) -> Image:
    """Section "Strides", MN-major. `matrix` is [mn, k], of 16-bit elements; rows of the image run along mn."""
    data = noise()
    rows = np.ascontiguousarray(matrix.T).view(np.uint8)  # [k, bytes along mn]
    span = width or 16
    blocks = rows.shape[1] // span
    along_k = 8 * span * 2
    along_mn = along_k * (rows.shape[0] // 8)
    for i in range(blocks):
        for j in range(rows.shape[0] // 8):
            block = rows[8 * j : 8 * j + 8, i * span : (i + 1) * span]
            block = swizzle_rows(block) if width else block
            data[i * along_mn + j * along_k :][: 8 * span] = block.ravel()
    # Without a swizzle the stride byte offset leads along mn and the leading one along k; with one it is the other way.
    leading, stride = (along_k, along_mn) if width == 0 else (along_mn, along_k)
    return Image(data, 0, leading, stride, MODES[width])


def noise() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 120, IMAGE).astype(np.uint8)


def accumulator_places(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Section "Register Fragments", matrix D: row and column of each element [thread, i] of the fragment."""
    thread, i = np.meshgrid(np.arange(128), np.arange(columns // 2), indexing="ij")
    group, in_group = thread % 32 >> 2, thread % 4
    row = 16 * (thread // 32) + group + np.where(i % 4 < 2, 0, 8)
    column = 8 * (i // 4) + 2 * in_group + (i & 1)
    return row, column


def left_places(item: int) -> tuple[np.ndarray, np.ndarray]:
    """Section "Register Fragments", matrix A for k8 (4 bytes), k16 (2) and k32 (1): row and k of each element."""
    per_register = 4 // item
    thread, i = np.meshgrid(np.arange(128), np.arange(4 * per_register), indexing="ij")
    group, in_group = thread % 32 >> 2, thread % 4
    register, inside = i // per_register, i % per_register
    row = 16 * (thread // 32) + group + np.where(register % 2 == 1, 8, 0)
    k = in_group * per_register + inside + np.where(register >= 2, 16 // item, 0)
    return row, k


def fragment_of(matrix: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(matrix[left_places(matrix.dtype.itemsize)]).view(np.uint32).ravel()


# ---- Running one product -------------------------------------------------------------------------------------------


def numbers(name: str, rows: int, columns: int, seed: int) -> np.ndarray:
    """Small integers, which every format holds."""
    low = 0 if name == "u8" else -3
    return np.random.default_rng(seed).integers(low, 4, (rows, columns)).astype(DTYPES[name])


def registers_of(product: Wgmma, matrix: np.ndarray) -> np.ndarray:
    """An accumulator [64, n] as the registers of 128 threads."""
    spread = np.ascontiguousarray(matrix.astype(DTYPES[product.result])[accumulator_places(product.columns)])
    result = np.zeros((128, 128), np.uint32)
    result[:, : product.accumulators] = spread.view(np.uint32)
    return result


def matrix_of(product: Wgmma, registers: np.ndarray) -> np.ndarray:
    used = np.ascontiguousarray(registers.reshape(128, 128)[:, : product.accumulators])
    result = np.empty((ROWS, product.columns), DTYPES[product.result])
    result[accumulator_places(product.columns)] = used.view(DTYPES[product.result])
    return result


def multiply(
    case: tuple[Wgmma, int, int],
    left: Image | None,
    right: Image,
    fragments: np.ndarray,
    c: np.ndarray,
    accumulate: int,
) -> np.ndarray:
    product = case[0]
    left = left or Image(noise(), 0, 16, 16, 0)
    fields = [left.start, left.leading, left.stride, left.mode]
    fields += [RIGHT_AT + right.start, right.leading, right.stride, right.mode]
    image = np.concatenate([left.data, right.data])
    scalars = [np.uint32(field) for field in fields]
    which = CASES.index(case)
    registers = registers_of(product, c).ravel()
    found = outputs(PRODUCT, image, fragments, registers, np.int32(which), np.int32(accumulate), *scalars)
    return matrix_of(product, found)


def check(case: tuple[Wgmma, int, int], left_width: int = 128, right_width: int = 128, step: int = 0) -> None:
    product, left_transposed, right_transposed = case
    per_step = product.depth
    depth = per_step * max(1, step + 1, max(left_width, right_width) // DEPTH_BYTES)
    a = numbers(product.left, ROWS, depth, 1)
    b = numbers(product.right, product.columns, depth, 2)
    c = numbers("s8", ROWS, product.columns, 3)
    used = slice(per_step * step, per_step * (step + 1))
    fragments = np.zeros(512, np.uint32)
    left = None
    if product.registers:
        fragments = fragment_of(np.ascontiguousarray(a[:, used]))
    else:
        left = image_mn_major(a[:, used], left_width) if left_transposed else image_k_major(a, left_width, step)
    right = image_mn_major(b[:, used], right_width) if right_transposed else image_k_major(b, right_width, step)
    sums = a[:, used].astype(np.float64) @ b[:, used].astype(np.float64).T
    for accumulate in (0, 1):
        got = multiply(case, left, right, fragments, c, accumulate)
        np.testing.assert_array_equal(got.astype(np.float64), sums + accumulate * c, err_msg=f"{case} {accumulate}")


WIDTHS = (0, 32, 64, 128)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_k_major_operand_in_every_swizzle_at_every_step_along_k(width: int) -> None:
    # Section "Strides", K-major; inside the width of a swizzle, k advances the start address by 32 bytes.
    for step in range(max(1, width // DEPTH_BYTES)):
        check((BF16, 0, 0), left_width=width, right_width=width, step=step)


@pytest.mark.parametrize("width", WIDTHS)
def test_an_mn_major_operand_in_every_swizzle(width: int) -> None:
    check((BF16, 1, 1), left_width=width, right_width=width)


@pytest.mark.parametrize("width", (0, 32))
def test_operands_of_different_majors_and_swizzles(width: int) -> None:
    check((BF16, 0, 1), left_width=width, right_width=128)
    check((BF16, 1, 0), left_width=64, right_width=width)


@pytest.mark.parametrize("product", IN_SHARED, ids=lambda product: product.name)
def test_every_type_of_operands_and_results(product: Wgmma) -> None:
    # Section "Register Fragments for wgmma.mma_async": m64nNk8, m64nNk16, m64nNk32, matrix D.
    for width in WIDTHS:
        check((product, 0, 0), left_width=width, right_width=width)


@pytest.mark.parametrize("product", IN_REGISTERS, ids=lambda product: product.name)
def test_a_left_operand_in_registers(product: Wgmma) -> None:
    # The same sections, matrix A.
    check((product, 0, 0))


def test_a_left_operand_in_registers_beside_a_transposed_right_one() -> None:
    check((IN_REGISTERS[0], 0, 1))


def test_tf32_ignores_the_low_13_bits() -> None:
    case = (IN_SHARED[4], 0, 0)
    a, b = numbers("tf32", ROWS, 8, 1), numbers("tf32", 24, 8, 2)
    c = np.zeros((ROWS, 24))
    dirty = (a.view(np.uint32) | 0x1FFF).view(np.float32)
    found = multiply(case, image_k_major(dirty, 0, 0), image_k_major(b, 0, 0), np.zeros(512, np.uint32), c, 0)
    np.testing.assert_array_equal(found, a @ b.T)


def test_f16_accumulators_round_each_sum() -> None:
    product = IN_SHARED[3]
    a = np.zeros((ROWS, 16), np.float16)
    a[:, 0] = 1
    b = np.ones((16, 16), np.float16)
    c = np.full((ROWS, 16), 2048.0)
    images = image_k_major(a, 0, 0), image_k_major(b, 0, 0)
    found = multiply((product, 0, 0), *images, np.zeros(512, np.uint32), c, 1)
    np.testing.assert_array_equal(found, np.float16(2048))  # 2049 lies between two numbers, and 2048 is the even one


# ---- Rules ---------------------------------------------------------------------------------------------------------

RULES = kernel(
    """
  const u32 thread = pal::thread_index();
  const u32 base = pal::shared_base();
  for (u32 k = 16 * thread; k < 8192; k += 2048) pal::store_shared(base + k, u32x4{0, 0, 0, 0});
  pal::fence_async();
  pal::sync_block();
  u64 left = pal::descriptor(base, 128, 256, 0);
  u64 right = pal::descriptor(base + 4096, 128, 256, 0);
  float acc[4] = {1, 2, 3, 4};
  pal::wgmma_fence();
  pal::wgmma_m64n8k16_f32_f16_f16<0, 0>(acc, left, right, 1);
  pal::wgmma_commit();
  pal::wgmma_wait<0>();
  // after
  for (int r = 0; r < 4; ++r) pal::store_global(d + 4 * thread + r, acc[r]);
    """,
    [output("d", np.float32, 512)],
    shared=8192,
    products=[Wgmma(8, "f32", "f16", "f16")],
)
CALL = "pal::wgmma_m64n8k16_f32_f16_f16<0, 0>(acc, left, right, 1);"


def test_the_kernel_of_the_rules_is_right() -> None:
    np.testing.assert_array_equal(outputs(RULES).reshape(128, 4), [[1, 2, 3, 4]] * 128)


@pytest.mark.parametrize(
    "old, new, says",
    [
        # "Matrix Descriptor Format"
        ("left = pal::descriptor(", "left = 1ull << 14 | pal::descriptor(", "has bits set that must be 0"),
        ("left = pal::descriptor(", "left = 1ull << 49 | pal::descriptor(", "has base offset 1"),
        (
            "base, 128, 256, 0)",
            "base + 8, 128, 256, 0)",
            "address 0x408 and offsets 128 and 256 must be multiples of 16",
        ),
        ("base, 128, 256, 0)", "base, 128, 256, 4)", "there are swizzling modes 0 to 3, not 4"),
        ("base, 128, 256, 0)", "base + 8000, 128, 256, 0)", "reach outside of shared memory, which is 0x400 to 0x2400"),
        ("base, 128, 256, 0)", "base + 128, 128, 1024, 1)", "in the middle of the 1024 bytes of its swizzle's pattern"),
        ("base, 128, 256, 0)", "base + 256, 128, 512, 2)", "in the middle of the 512 bytes of its swizzle's pattern"),
        ("base, 128, 256, 0)", "base + 128, 128, 256, 3)", "in the middle of the 256 bytes of its swizzle's pattern"),
        # "wgmma.fence"
        ("pal::wgmma_fence();", "", "the thread has executed no wgmma.fence before its first product"),
        (
            "// after",
            f"acc[2] = 5; {CALL}",
            "registers of its accumulator were written after the last product without a wgmma.fence",
        ),
        # Accumulators in flight
        ("pal::wgmma_commit();", "acc[1] = 0;", "takes a register of an accumulator whose product is in flight"),
        (
            "pal::wgmma_commit();",
            "acc[1] = 0; pal::wgmma_commit();",
            "the thread wrote register 1 of the accumulator while the product was in flight",
        ),
        # Proxies
        ("pal::fence_async();", "", "thread 0 stored without a fence.proxy.async after it"),
        (
            "pal::wgmma_commit();",
            "pal::wgmma_commit(); pal::sync_block(); pal::store_shared<u32>(base, 0);",
            "writes bytes at 0x400 that an asynchronous operation in flight still reads",
        ),
        # "mma_async": .sync.aligned, all threads of the warpgroup
        (CALL, f"if (thread < 64) {CALL} else {CALL}", "the threads of a warpgroup must execute this product together"),
        (
            "left = pal::descriptor(base, 128, 256, 0)",
            "left = pal::descriptor(base + (thread == 77) * 16, 128, 256, 0)",
            "the threads of a warpgroup give one product different operands",
        ),
        (
            CALL,
            f"if (thread < 96) {CALL}",
            "group 0 of the warpgroup ends after product 0 in one thread and after 1 in this one",
        ),
        ("pal::wgmma_wait<0>();", "return;", "products of the warpgroup are still in flight"),
    ],
)
def test_a_broken_rule_is_told(old: str, new: str, says: str) -> None:
    assert says in failure(changed(RULES, old, new))


@pytest.mark.parametrize(
    "use, says",
    [
        ("pal::store_global(d, acc[2]);", "kernel.cu:11: block 0, warp 3, lane 31, st.global: "),
        ("pal::store_shared(base, 2 * acc[2] + 1);", "st.shared: "),
        ("pal::pack_bf16(0, acc[1]);", "cvt.rn.bf16x2: "),
        ("pal::pack_f16(acc[1] - 1, 0);", "cvt.rn.f16x2: "),
        ("pal::bits_bf16(acc[1]);", "cvt.rn.bf16: "),
        ("pal::bits_f16(-acc[1]);", "cvt.rn.f16: "),
        ("pal::bits_e4m3(acc[1]);", "cvt.rn.e4m3: "),
        ("pal::bits_e5m2(acc[1]);", "cvt.rn.e5m2: "),
    ],
)
def test_an_accumulator_in_flight_is_not_taken(use: str, says: str) -> None:
    # Registers in flight hold a NaN whose bits arithmetic passes on.
    early = failure(changed(RULES, "pal::wgmma_commit();", f"pal::wgmma_commit(); {use}"))
    assert f"{says}takes a register of an accumulator whose product is in flight: wait for it first" in early


def test_other_nans_are_taken() -> None:
    nan = outputs(changed(RULES, "// after", "acc[0] = PAL_NAN; acc[1] = pal::float_of(0xffffffff);")).reshape(128, 4)
    assert np.isnan(nan[:, :2]).all() and not np.isnan(nan[:, 2:]).any()


def test_kept_registers_stay_as_they_are() -> None:
    more = "int i[1] = {3}; u32 u[1] = {4}; pal::keep(acc); pal::keep(i); pal::keep(u); acc[2] = i[0], acc[3] = u[0];"
    np.testing.assert_array_equal(outputs(changed(RULES, "// after", more)).reshape(128, 4), [[1, 2, 3, 4]] * 128)


LEFT = changed(
    replace(RULES, products=(Wgmma(8, "f32", "f16", "f16", registers=True),)),
    CALL,
    "u32 a[4] = {0, 0, 0, 0}; pal::wgmma_m64n8k16_f32_f16_f16_registers<0>(acc, a[0], a[1], a[2], a[3], right, 1);",
)


def test_a_left_operand_in_registers_is_left_alone_until_the_product_is_complete() -> None:
    outputs(LEFT)
    outputs(changed(LEFT, "// after", "a[3] = 1;"))
    early = changed(LEFT, "pal::wgmma_commit();", "pal::wgmma_commit(); a[3] = 1;")
    assert "the thread wrote register 3 of the left operand while the product was in flight" in failure(early)
    computed = changed(changed(LEFT, "a[0], a[1], a[2], a[3]", "a[0] + 0, 0, a[2], (u32)0"), "// after", "a[0] = 7;")
    outputs(computed)


def test_products_need_a_whole_warpgroup() -> None:
    half = changed(RULES, "PAL_BOUNDS(128)", "PAL_BOUNDS(96)")
    assert "is not in a warpgroup of four warps" in failure(replace(half, threads=96))
