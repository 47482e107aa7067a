"""What a kernel tells its programmer: the functions of CUDA's runtime for it."""

from __future__ import annotations

import numpy as np
import pytest

from palladio.hopper.twin.run import SCHEDULES, TwinError, run
from tests.hopper.twin.kernels import array, kernel, output

X = np.arange(32, dtype=np.int32)


def alone(body: str):  # type: ignore[no-untyped-def]
    parameters = [array("x", "i4", 32), output("y", "i4", 32)]
    return kernel(f"const int n = x[pal::thread_index()];\n{body}\ny[n] = n;", parameters, threads=32)


def test_values_are_promoted_as_those_of_printf(capfd: pytest.CaptureFixture[str]) -> None:
    text = r'if (n == 3) pal::print("%d %u %.2f %s %lld%%\n", n, 4000000000u, 0.5f, "text", 1ll << 40);'
    run(alone(text), [X], SCHEDULES[0])
    assert capfd.readouterr().out == "3 4000000000 0.50 text 1099511627776%\n"


def test_each_thread_that_calls_it_prints(capfd: pytest.CaptureFixture[str]) -> None:
    run(alone(r'if (n % 16 == 0) pal::print("%d\n", n);'), [X], SCHEDULES[0])
    assert sorted(capfd.readouterr().out.split()) == ["0", "16"]


def test_a_check_that_fails_ends_the_kernel_at_the_place_that_it_names() -> None:
    text = (
        'if (n == 40) pal::check_failed("never", "a.py", 1);\nif (n == 7) pal::check_failed("seven", "/some/b.py", 12);'
    )
    with pytest.raises(TwinError, match=r"b\.py:12: block 0, warp 0, lane 7, assert: debug_check failed: seven"):
        run(alone(text), [X], SCHEDULES[0])
