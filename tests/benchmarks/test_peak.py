"""The peak of the processor's registers."""

import pytest

from benchmarks import peak
from palladio.cpu.runtime import host


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_peak_is_measured_on_this_processor(dtype):
    assert peak.peak(dtype) > 1e9


@pytest.mark.parametrize(
    ("instructions", "dtype", "product", "count", "operations"),
    [
        ("amx", "bfloat16", "call void @llvm.x86.tdpbf16ps(", 4, 2 * 32 * 16 * 16),
        ("amx", "float32", "call <16 x float> @llvm.fma.v16f32(", 28, 2 * 16),
        ("avx512bf16", "bfloat16", "call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(", 28, 2 * 32),
        ("avx512", "bfloat16", "call <16 x float> @llvm.fma.v16f32(", 28, 2 * 16),
        ("avx2", "float32", "call <8 x float> @llvm.fma.v8f32(", 12, 2 * 8),
        ("portable", "float32", "fmul <4 x float>", 12, 2 * 4),
    ],
)
def test_the_peak_is_measured_with_the_fastest_instructions(instructions, dtype, product, count, operations):
    processor = host.Processor.of("x86_64-unknown-linux-gnu", "some", "", host._X86[instructions][2])
    loop = peak.loop(processor, dtype)
    assert loop.text.count(product) == count
    assert loop.operations == count * operations


def test_the_best_of_several_measurements_is_the_peak(monkeypatch):
    rates = iter([2e9, 7e9, 5e9, 6e9, 3e9, 8e9])
    monkeypatch.setattr(peak, "_best", {})
    monkeypatch.setattr(peak, "_rate", lambda dtype: next(rates))
    for _ in range(3):
        peak.measure()
    assert (peak.peak("float32"), peak.peak("bfloat16")) == (5e9, 8e9)
