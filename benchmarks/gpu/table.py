"""The table of comparisons on a card: the computation, its contenders, and the target ratio of each case.

A ratio is the best peer's time over ours: 1.1 is a tenth faster. A missing library or function is reported with the
reason; a contender with a wrong result is not timed.

The peers of attention are named, since PyTorch's default changes between releases: the aim of 1.6 is of
FlashAttention-2, the default until cuDNN's attention became the one for Hopper. The default is timed beside it, without
an aim. Queries, keys and values are `[1, heads, tokens, depth]` in row-major order. In the case "of projections" they
are views of `[1, tokens, heads, depth]`, as a model's linear layers make them: copies that an implementation needs
count there.
"""

from __future__ import annotations

import gc
import importlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from benchmarks.gpu import cost_model, timing
from benchmarks.gpu.children import say
from benchmarks.gpu.results import OURS
from benchmarks.gpu.timing import ContenderError
from palladio import library
from palladio.call.jit import jit
from palladio.hopper.launch.driver import CardError, driver
from palladio.library import hopper

LOOSE = 2e-2
"""Allowed relative error of results in bfloat16 against the reference, which is one of the peers."""

SHARE = 0.95
"""The least rate of groups of different sizes, as a share of that of groups of one size."""


@dataclass(frozen=True)
class Case:
    """A comparison.

    Fields:
        name: of the case.
        make: the contenders, as name and function, and the floating-point operations; the first is the reference.
        aim: the target ratio; None without one.
        least: the target rate in TFLOP/s; None without one.
        allowed: the relative error that a contender may have.
        beside: the case with groups of one size, of whose rate this one reaches at least `SHARE`.
        unjudged: contenders that are timed and are not peers for the ratio.
    """

    name: str
    make: Callable[[Any, float], tuple[dict[str, Callable[[], Any]], float]]
    aim: float | None = None
    least: float | None = None
    allowed: float = LOOSE
    beside: str | None = None
    unjudged: tuple[str, ...] = ()


def _size(n: int, scale: float, multiple: int = 128) -> int:
    """A scaled size, for runs that only show that everything works."""
    return max(multiple, int(n * scale) // multiple * multiple)


def _random(torch: Any, *shape: int, dtype: Any = None) -> Any:
    """Random normal numbers, drawn on the card: the largest arrays take a minute on a processor."""
    made = torch.randn(*shape, dtype=torch.bfloat16, device="cuda:0")
    return made if dtype is None else made.to(dtype)


def _matmul(m: int, n: int, k: int) -> Callable[[Any, float], Any]:
    def make(torch: Any, scale: float) -> Any:
        rows = m if m < 1024 else _size(m, scale)
        x, y = _random(torch, rows, _size(k, scale)), _random(torch, _size(k, scale), _size(n, scale))
        transposed = y.t().contiguous()
        contenders = {
            "torch.matmul": lambda: torch.matmul(x, y),
            "torch.matmul, transposed": lambda: torch.matmul(x, transposed.t()),
            "torch.matmul, cuBLASLt": lambda: _with_cublaslt(torch, x, y),
            "DeepGEMM": lambda: _deep_gemm(torch, x, transposed),
            OURS: lambda: hopper.matmul(x, y),
        }
        return contenders, 2.0 * x.shape[0] * x.shape[1] * y.shape[1]

    return make


def _with_cublaslt(torch: Any, x: Any, y: Any) -> Any:
    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library("cublaslt")
    try:
        return torch.matmul(x, y)
    finally:
        torch.backends.cuda.preferred_blas_library(before)


def _deep_gemm(torch: Any, x: Any, transposed: Any) -> Any:
    deep_gemm = importlib.import_module("deep_gemm")
    out = torch.empty((x.shape[0], transposed.shape[0]), dtype=x.dtype, device=x.device)
    deep_gemm.bf16_gemm_nt(x, transposed, out)
    return out


def _fp8(n: int, fast: bool) -> Callable[[Any, float], Any]:
    """8-bit floats, summed on the tensor cores alone (`fast`), or with sums that leave them after some steps."""

    def make(torch: Any, scale: float) -> Any:
        size, kind = _size(n, scale), torch.float8_e4m3fn
        x, y = _random(torch, size, size, dtype=kind), _random(torch, size, size, dtype=kind)  # y as [n, k]
        one = torch.ones((), dtype=torch.float32).to("cuda:0")
        config = hopper.MatmulConfig(tile_k=128, cluster="m", promote=False) if fast else None
        contenders = {
            "torch._scaled_mm": lambda: torch._scaled_mm(
                x, y.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
            ),
            OURS: lambda: hopper.matmul(x, y, transpose_rhs=True, x_scale=one, y_scale=one, config=config),
        }
        return contenders, 2.0 * size**3

    return make


def sizes_of(kind: str, groups: int, rows: int) -> list[int]:
    """Rows of each group: uniform, skewed (each half of the one before, the seventh and later ones equal), every
    other one empty, or unaligned."""
    if kind == "skewed":
        weights = [0.5 ** min(n, 6) for n in range(groups)]
    elif kind == "empty":
        weights = [float(n % 2) for n in range(groups)]
    elif kind == "unaligned":
        weights = [1.0 + 0.37 * math.sin(n) for n in range(groups)]
    else:
        weights = [1.0] * groups
    sizes = [int(rows * weight / sum(weights)) for weight in weights]
    sizes[-1] += rows - sum(sizes)
    return sizes


def _gmm(groups: int, rows: int, k: int, n: int, kind: str = "uniform") -> Callable[[Any, float], Any]:
    def make(torch: Any, scale: float) -> Any:
        count = max(2, int(groups * scale))
        m, inner, columns = _size(rows, scale), _size(k, scale), _size(n, scale)
        x, w = _random(torch, m, inner), _random(torch, count, inner, columns)
        sizes = torch.tensor(sizes_of(kind, count, m), dtype=torch.int32)
        ends, sizes = sizes.cumsum(0).to(torch.int32).to("cuda:0"), sizes.to("cuda:0")
        contenders = {
            "torch._grouped_mm": lambda: torch._grouped_mm(x, w, offs=ends),
            OURS: lambda: hopper.gmm(x, w, sizes),
        }
        return contenders, 2.0 * m * inner * columns

    return make


def _tgmm(groups: int, rows: int, k: int, n: int, kind: str = "uniform") -> Callable[[Any, float], Any]:
    def make(torch: Any, scale: float) -> Any:
        count = max(2, int(groups * scale))
        m, inner, columns = _size(rows, scale), _size(k, scale), _size(n, scale)
        x, dy = _random(torch, m, inner), _random(torch, m, columns)
        sizes = torch.tensor(sizes_of(kind, count, m), dtype=torch.int32)
        ends, sizes = sizes.cumsum(0).to(torch.int32).to("cuda:0"), sizes.to("cuda:0")
        lhs = x.t().contiguous()
        contenders = {
            "torch._grouped_mm, gradient": lambda: torch._grouped_mm(x.t(), dy, offs=ends),
            OURS: lambda: hopper.tgmm(lhs, dy, sizes),
        }
        if kind == "empty":  # PyTorch's hangs at empty groups: pytorch#152668
            del contenders["torch._grouped_mm, gradient"]
        return contenders, 2.0 * m * inner * columns

    return make


def _attention(
    causal: bool, backend: str, projections: bool = False, heads: int = 16, tokens: int = 16384, depth: int = 128
) -> Callable[[Any, float], Any]:
    def make(torch: Any, scale: float) -> Any:
        rows = _size(tokens, scale)
        count = max(1, int(heads * scale))
        shape = (1, rows, count, depth) if projections else (1, count, rows, depth)
        q, k, v = (_random(torch, *shape) for _ in range(3))
        if projections:
            q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        attend = torch.nn.functional.scaled_dot_product_attention

        def peer() -> Any:
            kinds = importlib.import_module("torch.nn.attention")
            with kinds.sdpa_kernel(getattr(kinds.SDPBackend, backend)):
                return attend(q, k, v, is_causal=causal)

        contenders = {
            f"scaled_dot_product_attention, {backend}": peer,
            DEFAULT: lambda: attend(q, k, v, is_causal=causal),
            OURS: lambda: hopper.attention(q, k, v, causal=causal),
        }
        return contenders, 4.0 * count * rows * rows * depth / (2 if causal else 1)

    return make


def _rows(function: str) -> Callable[[Any, float], Any]:
    """Softmax or RMSNorm of 8192² against a copy of the same bytes."""

    def make(torch: Any, scale: float) -> Any:
        size = _size(8192, scale)
        x, weight = _random(torch, size, size), _random(torch, size)
        out = torch.empty_like(x)
        peers = {
            "softmax": lambda: torch.softmax(x.float(), -1).to(x.dtype),
            "rms_norm": lambda: torch.nn.functional.rms_norm(x, (size,), weight),
        }
        arguments = (x, weight) if function == "rms_norm" else (x,)
        contenders = {
            f"torch {function}": peers[function],
            "a copy": lambda: out.copy_(x),
            OURS: lambda: _of(function)(*arguments),
        }
        return contenders, 4.0 * size * size

    return make


def _moe(experts: int, top: int, tokens: int, hidden: int, inner: int) -> Callable[[Any, float], Any]:
    def make(torch: Any, scale: float) -> Any:
        count, rows = max(2, int(experts * scale)), _size(tokens, scale)
        h, i, chosen = _size(hidden, scale), _size(inner, scale), min(top, count)
        x, up, down = _random(torch, rows, h), _random(torch, count, 2 * i, h), _random(torch, count, h, i)
        weights, ids = torch.randn(rows, count).softmax(-1).topk(chosen)
        ids, weights = ids.to("cuda:0"), weights.to(torch.bfloat16).to("cuda:0")
        contenders = {
            "Transformers, grouped_mm": lambda: _of_transformers(torch, count, x, ids, weights, up, down),
            "torch._grouped_mm, composed": lambda: _composed(torch, x, ids, weights, up, down),
            OURS: lambda: hopper.moe_mlp(x, ids, weights, up, down, transposed=True),
        }
        return contenders, 6.0 * rows * chosen * h * i

    return make


def _of_transformers(torch: Any, count: int, x: Any, ids: Any, weights: Any, up: Any, down: Any) -> Any:
    transformers = importlib.import_module("transformers.integrations.moe")
    layer = SimpleNamespace(
        num_experts=count,
        gate_up_proj=up,
        down_proj=down,
        has_gate=True,
        has_bias=False,
        is_transposed=False,
        has_post_expert_norm=False,
        _is_expert_parallel=False,
        act_fn=torch.nn.functional.silu,
    )
    layer._apply_gate = lambda values: transformers._default_apply_gate(layer, values)
    return transformers.grouped_mm_experts_forward(layer, x, ids, weights)


def _composed(torch: Any, x: Any, ids: Any, weights: Any, up: Any, down: Any) -> Any:
    """The layer of PyTorch's operations, for a Transformers without such a function: it sorts rows by expert."""
    experts, order = ids.flatten().sort()
    rows = order // ids.shape[1]
    ends = torch.bincount(experts, minlength=up.shape[0]).cumsum(0).to(torch.int32)
    gate, value = torch._grouped_mm(x[rows], up.transpose(1, 2), offs=ends).chunk(2, -1)
    hidden = torch.nn.functional.silu(gate) * value
    found = torch._grouped_mm(hidden, down.transpose(1, 2), offs=ends) * weights.flatten()[order, None]
    return torch.zeros_like(x).index_add_(0, rows, found)


def _of(function: str) -> Callable[..., Any]:
    found: Callable[..., Any] | None = getattr(hopper, function, None)
    if found is None:
        raise NotImplementedError(f"palladio.library.hopper has no {function} yet")
    return found


CUDNN, FLASH = "CUDNN_ATTENTION", "FLASH_ATTENTION"
DEFAULT = "scaled_dot_product_attention, default"
GMM, TGMM = "gmm 256 groups 262k rows", "tgmm 256 groups 262k rows"
KINDS = "skewed", "empty", "unaligned"
CASES: dict[str, Case] = {
    each.name: each
    for each in (
        Case("matmul bf16 8192", _matmul(8192, 8192, 8192), 1.0),
        Case("matmul fp8 8192", _fp8(8192, fast=False), 1.0, allowed=5e-2),
        Case("matmul fp8 8192, fast accumulation", _fp8(8192, fast=True), 1.0, 1300.0, allowed=5e-2),
        Case(GMM, _gmm(256, 262144, 6144, 4096), 1.1),
        Case(TGMM, _tgmm(256, 262144, 6144, 4096), 1.1, 550.0),
        Case("attention 16k causal, cuDNN", _attention(True, CUDNN), 0.95, unjudged=(DEFAULT,)),
        Case("moe_mlp Qwen3", _moe(128, 8, 16384, 2048, 768), 1.3),
        Case("RMSNorm 8192", _rows("rms_norm"), 0.9),
        Case("softmax 8192", _rows("softmax"), 0.9),
        Case("matmul bf16 4096", _matmul(4096, 4096, 4096), 1.0),
        *(Case(f"matmul bf16 {m} x 7168 x 4096", _matmul(m, 7168, 4096), 0.9) for m in (16, 32, 64, 128, 256, 512)),
        Case("gmm 256 groups 524k rows", _gmm(256, 524288, 6144, 4096), 1.1),
        Case("gmm Mixtral", _gmm(8, 32768, 4096, 14336), 1.2),
        *(Case(f"gmm 256 groups {kind}", _gmm(256, 262144, 6144, 4096, kind), 1.1, beside=GMM) for kind in KINDS),
        Case("tgmm 256 groups 524k rows", _tgmm(256, 524288, 6144, 4096), 1.1, 550.0),
        Case("tgmm Mixtral", _tgmm(8, 32768, 4096, 14336), 1.1, 550.0),
        *(Case(f"tgmm 256 groups {kind}", _tgmm(256, 262144, 6144, 4096, kind), 1.1, beside=TGMM) for kind in KINDS),
        Case("attention 16k, cuDNN", _attention(False, CUDNN), 1.0, unjudged=(DEFAULT,)),
        Case("attention 16k, FlashAttention-2", _attention(False, FLASH), 1.6, unjudged=(DEFAULT,)),
        Case("attention 16k causal, FlashAttention-2", _attention(True, FLASH), 1.6, unjudged=(DEFAULT,)),
        Case("attention 16k causal, of projections", _attention(True, CUDNN, projections=True), unjudged=(DEFAULT,)),
        Case("moe_mlp DeepSeek", _moe(256, 8, 16384, 7168, 2048), 1.3),
    )
}
"""The cases in the order of measurement: the first of each kind, then others, of which some depend on the first."""


CALLS = "calls from Python"
CALLS_AT_ONCE, CALL_ROUNDS = 50, 60
KEPT_US, LIBRARY_US = 5.0, 8.0
"""The most microseconds from a kept call in Python to the driver, and through the library."""


def _calls(torch: Any) -> dict[str, Any]:
    """The shortest times of calls in Python, of a product so small that the card is done before the next call."""
    x, y = _random(torch, 64, 64), _random(torch, 64, 64)
    sizes, matrices = torch.tensor([64], dtype=torch.int32).to("cuda:0"), y[None].contiguous()
    kept = jit(hopper.matmul).ahead(x, y)
    calls = {
        "a kept call": (lambda: kept(x, y), KEPT_US),
        "matmul": (lambda: library.matmul(x, y), LIBRARY_US),
        "gmm": (lambda: library.gmm(x, matrices, sizes), LIBRARY_US),
        "torch.matmul": (lambda: torch.matmul(x, y), None),
    }
    least = dict.fromkeys(calls, math.inf)
    for _ in range(CALL_ROUNDS):
        for name, (call, _aim) in calls.items():
            call()
            _wait()
            begun = time.perf_counter()
            for _ in range(CALLS_AT_ONCE):
                call()
            least[name] = min(least[name], (time.perf_counter() - begun) / CALLS_AT_ONCE)
            _wait()
    aims = {name: aim for name, (_, aim) in calls.items() if aim is not None}
    return {"microseconds": {name: 1e6 * value for name, value in least.items()}, "most_microseconds": aims}


def _wait() -> None:
    known = driver()
    with known.current(known.hopper(0)):
        known.call("cuCtxSynchronize")


def run(name: str, scale: float = 1.0, rounds: int = timing.ROUNDS, without: str | None = None) -> int:
    """Measure a case and report the result; returns the exit status.

    Args:
        without: a contender that is left out.
    """
    if name == cost_model.NAME:
        return cost_model.run(scale)
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        say(case=name, skipped=str(error))
        return 0
    try:
        say(case=name, **(_calls(torch) if name == CALLS else _measured(CASES[name], torch, scale, rounds, without)))
    except ContenderError as error:
        say(case=name, skipped=_reason(error.__cause__), failed=str(error))
    except Exception as error:  # e.g. arrays that do not fit into the card's memory
        say(case=name, skipped=_reason(error))
    if is_context_sound():
        gc.collect()
        torch.cuda.empty_cache()
    return 0


def _reason(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _measured(case: Case, torch: Any, scale: float, rounds: int, without: str | None) -> dict[str, Any]:
    torch.manual_seed(0)
    contenders, flops = case.make(torch, scale)
    contenders = {each: call for each, call in contenders.items() if each != without}
    fit, missing = _checked(contenders, case.allowed, torch)
    if not fit:
        return {"missing": missing}
    print("timing begins", flush=True)
    stream = int(torch._C._cuda_getCurrentRawStream(0))
    times = timing.medians([timing.Contender(each, contenders[each]) for each in fit], stream, rounds)
    return {**_result(case, times, flops), "missing": missing}


def is_context_sound() -> bool:
    """True unless a kernel has destroyed the CUDA context of this process."""
    try:
        _wait()
    except CardError:
        return False
    return True


def _result(case: Case, times: dict[str, float], flops: float) -> dict[str, Any]:
    """Times, speeds, and the ratio to the best peer."""
    speeds = {name: flops / time / 1e9 for name, time in times.items()}
    peers = [time for name, time in times.items() if name not in (OURS, *case.unjudged)]
    ratio = min(peers) / times[OURS] if peers and OURS in times else None
    aims = {"ratio": ratio, "aim": case.aim, "least_tflops": case.least}
    return {"milliseconds": times, "tflops": speeds, **aims, "unjudged": case.unjudged}


def _checked(contenders: dict[str, Callable[[], Any]], allowed: float, torch: Any) -> tuple[list[str], dict[str, str]]:
    """The contenders to time, and the reasons against the others; the first one that runs is the reference.

    Raises:
        ContenderError: a contender has destroyed the CUDA context.
    """
    fit: list[str] = []
    missing: dict[str, str] = {}
    reference = None
    for name, run in contenders.items():
        print(f"{name} begins", flush=True)
        try:
            result = run()
            reference = result if reference is None else reference
            error = relative_error(result, reference)
            for _ in range(2):
                run()
            _wait()  # an error of a kernel is this contender's
        except Exception as error:  # a peer that raises anything counts as missing
            if not is_context_sound():
                raise ContenderError(name) from error
            missing[name] = _reason(error)
            continue
        if name != "a copy" and not error <= allowed:
            missing[name] = f"wrong: relative error {error:.1e} against the first"
            continue
        fit.append(name)
    return fit, missing


COMPARED = 1 << 26
"""Elements that are compared at a time, in float32: whole results may not fit into memory again."""


def relative_error(got: Any, expected: Any) -> float:
    """The norm of the difference of two tensors over that of the second."""
    difference = norm = 0.0
    for start in range(0, expected.numel(), COMPARED):
        one, other = (each.reshape(-1)[start : start + COMPARED].float() for each in (got, expected))
        difference += float((one - other).square().sum())
        norm += float(other.square().sum())
    return math.sqrt(difference / norm) if norm else math.sqrt(difference)


def names() -> Iterator[str]:
    """The cases, in order."""
    return iter((CALLS, *CASES, cost_model.NAME))
