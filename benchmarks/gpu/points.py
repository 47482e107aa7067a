"""Hardware checks, most fundamental first: points of the PTX ISA that only a card can settle.

The host twin implements the text of the PTX ISA; these checks expose a misreading. Each point is a function that
returns a short text about its result, and raises if the result is wrong.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import palladio as pl
import palladio.gpu as plgpu
from benchmarks.gpu.accuracy import BF16, CUT, E4M3, F16, F32, I8, ROUNDED, SUMMED, close, normal, product
from benchmarks.gpu.replay import matmul_call, replayed
from palladio import library
from palladio.hopper.launch.calls import on_host_arrays
from palladio.hopper.lowered import FewerRows
from palladio.library import hopper
from tests.library.references import attention_reference, tgmm_reference


def _multiplied(a: np.ndarray, b: np.ndarray, transposes: str = "", sums: np.dtype = F32) -> np.ndarray:
    """The product by one warpgroup of tiles that are copied whole; `transposes` names tiles to transpose in place."""
    shape = (a.shape["a" in transposes], b.shape["b" not in transposes])

    def body(a: Any, b: Any, out: Any, a_tile: Any, b_tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a, a_tile, full)
        plgpu.copy_gmem_to_smem(b, b_tile, full)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> Any:
            plgpu.wgmma(acc, a_tile.T if "a" in transposes else a_tile, b_tile.T if "b" in transposes else b_tile)
            return acc[...]

        out[...] = pl.run_scoped(multiply, plgpu.ACC(shape, sums))

    scratch = [plgpu.SMEM(a.shape, a.dtype), plgpu.SMEM(b.shape, b.dtype), plgpu.Barrier(num_arrivals=2)]
    return np.asarray(_kernel(body, shape, sums, scratch)(a, b))


def _kernel(body: Any, shape: tuple[int, ...], dtype: np.dtype, scratch: Any, **options: Any) -> Any:
    return plgpu.kernel(body, pl.ShapeDtypeStruct(shape, dtype), scratch_types=scratch, interpret="hopper", **options)


def launch() -> str:
    """A kernel is loaded and runs, on ordinary loads and stores."""

    def double(x: Any, out: Any) -> None:
        out[...] = x[...] + x[...]

    x = normal(64, 128, dtype=F32)
    return close(_kernel(double, x.shape, F32, ())(x), 2 * x.astype(np.float64), 1e-7)


def copies() -> str:
    """Boxes of tensor maps arrive in shared memory and are stored again."""

    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full)
        plgpu.barrier_wait(full)
        plgpu.copy_smem_to_gmem(tile, out)
        plgpu.wait_smem_to_gmem(0)

    x = normal(64, 128)
    return close(_kernel(body, x.shape, BF16, [plgpu.SMEM(x.shape, BF16), plgpu.Barrier()])(x), x, 0)


def descriptors() -> str:
    """Matrix descriptors: swizzles of 128, 64 and 32 bytes, both majors of 16-bit operands."""
    said = []
    for columns in (64, 32, 16):
        a, b = normal(64, columns), normal(columns, columns, seed=1)
        said.append(f"{2 * columns} bytes " + close(_multiplied(a, b), product(a, b), SUMMED))
    for dtype in (BF16, F16):
        for transposes in ("a", "b", "ab"):
            a, b = normal(64, 64, dtype=dtype), normal(64, 64, dtype=dtype, seed=1)
            wanted = product(a.T if "a" in transposes else a, b.T if "b" in transposes else b)
            said.append(f"{dtype} {transposes}.T " + close(_multiplied(a, b, transposes), wanted, SUMMED))
    return "; ".join(said)


def dtypes_of_products() -> str:
    """Products of fp8, int8 and tf32."""
    said = []
    for dtype, sums, allowed in ((E4M3, F32, CUT), (I8, np.dtype(np.int32), 0.0), (F32, F32, CUT)):
        depth = 128 // dtype.itemsize
        a, b = normal(64, depth, dtype=dtype), normal(32, depth, dtype=dtype, seed=1)
        said.append(f"{dtype} " + close(_multiplied(a, b, "b", sums), product(a, b.T), allowed))
    return "; ".join(said)


def row_offsets() -> str:
    """Stores by tensor maps of rows of a swizzled buffer, from an offset known only at run time."""

    def body(x: Any, out: Any, tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x, tile, full)
        plgpu.barrier_wait(full)

        @pl.loop(0, 4)
        def _(n: Any) -> None:
            # The pieces are stored in the opposite order, so that a wrong swizzle changes the result.
            plgpu.copy_smem_to_gmem(tile.at[pl.ds(pl.multiple_of(n * 16, 16), 16)], out.at[pl.ds(48 - n * 16, 16)])

        plgpu.wait_smem_to_gmem(0)

    x = normal(64, 64)
    scratch = [plgpu.SMEM(x.shape, BF16, transforms=(plgpu.SwizzleTransform(128),)), plgpu.Barrier()]
    wanted = np.concatenate([x[48 - n : 64 - n] for n in range(0, 64, 16)])
    return close(_kernel(body, x.shape, BF16, scratch)(x), wanted, 0)


def left_in_registers() -> str:
    """A left operand in registers."""

    def body(a: Any, b: Any, out: Any, b_tile: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(b, b_tile, full)
        left = (a[...] * 2).astype(BF16)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> Any:
            plgpu.wgmma(acc, left, b_tile.T)
            return acc[...]

        out[...] = pl.run_scoped(multiply, plgpu.ACC((64, 32)))

    a, b = normal(64, 64, dtype=F32), normal(32, 64, seed=1)
    got = _kernel(body, (64, 32), F32, [plgpu.SMEM((32, 64), BF16), plgpu.Barrier()])(a, b)
    return close(got, product((2 * a).astype(BF16), b.T), SUMMED)


def register_pool() -> str:
    """Warpgroups that release and acquire registers (setmaxnreg), and a ring that runs ahead across tiles."""
    x, y = normal(512, 512), normal(512, 1024, seed=1)
    config = hopper.MatmulConfig(blocks=2)
    return close(hopper.matmul(x, y, config=config, interpret="hopper"), product(x, y), ROUNDED)


def multicast() -> str:
    """Blocks of a cluster that load an operand together, a half each."""
    said = []
    for axis in ("m", "n"):
        x, y = normal(512, 256), normal(256, 1024, seed=1)
        config = hopper.MatmulConfig(cluster=axis)
        got = hopper.matmul(x, y, config=config, interpret="hopper")
        said.append(f"along {axis} " + close(got, product(x, y), ROUNDED))
    return "; ".join(said)


def replaced_addresses() -> str:
    """Replaced addresses of tensor maps: a kernel on arrays at other addresses than in its first launch."""
    said = []
    for seed in range(3):
        x, y = normal(256, 128, seed=seed), normal(128, 512, seed=seed + 7)
        hold = [np.zeros(1 << 20, np.uint8) for _ in range(seed)]  # moves later allocations
        got = hopper.matmul(x, y, config=hopper.MatmulConfig(), interpret="hopper")
        said.append(close(got, product(x, y), ROUNDED))
        del hold
    return "; ".join(said)


def fewer_rows() -> str:
    """Machine code for more rows than an array has: tensor maps end at the rows of the call."""
    x, y = normal(200, 128), normal(128, 512, seed=1)
    rows = {0: (0, len(x))}
    call = matmul_call(256, 128, 512).of_fewer_rows(FewerRows(rows, rows))
    if call is None:
        raise RuntimeError("the product is compiled for its own number of rows")
    (got,) = on_host_arrays(call, [x, y])
    return close(got, product(x, y), ROUNDED)


def shared_scopes() -> str:
    """Two warpgroups and a single warp that meet at a scope in a loop (bar.sync of a part of a block)."""

    def body(x: Any, out: Any) -> None:
        group = pl.axis_index("warpgroup")

        @pl.loop(0, 8)
        def _(turn: Any) -> None:
            def inner(tile: Any, full: Any) -> None:
                pl.when(group == 1)(lambda: plgpu.copy_gmem_to_smem(x.at[turn], tile, full))

                @pl.when(group == 0)
                def _() -> None:
                    plgpu.barrier_wait(full)
                    out[turn] = tile[...]

            pl.run_scoped(inner, plgpu.SMEM((64,), F32), plgpu.Barrier(), collective_axes="warpgroup")

    x = normal(8, 64, dtype=F32)
    return close(_kernel(body, x.shape, F32, (), num_threads=2, thread_name="warpgroup")(x), x, 0)


def graphs() -> str:
    """A kernel captured into a CUDA graph on a separate stream, and replayed on other contents."""
    return replayed()


def tensors() -> str:
    """Tensors of PyTorch on a stream of its own, and a graph that it captures of a call, replayed on other contents."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return f"not tried: {error}"
    x, other, y = (
        torch.randn(*shape, dtype=torch.bfloat16, device="cuda:0") for shape in ((256, 128), (256, 128), (128, 512))
    )
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        first = library.matmul(x, y)
        with torch.cuda.graph(graph, stream=side):
            out = library.matmul(x, y)
        said = [_of_tensors(first, x, y)]
        for contents in (x, other):
            x.copy_(contents)
            graph.replay()
            said.append("replayed " + _of_tensors(out, contents, y))
    return "; ".join(said)


def later_calls() -> str:
    """Kept calls of tensors by PyTorch's functions of C: other tensors, parameters, results of their own, a stream."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return f"not tried: {error}"
    given = [torch.randn(256, 128, dtype=torch.bfloat16, device="cuda:0") for _ in range(4)]
    y = torch.nn.Parameter(torch.randn(128, 512, dtype=torch.bfloat16, device="cuda:0"))
    with torch.no_grad():
        found = [library.matmul(x, y) for x in given]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found += [library.matmul(x, y) for x in given]
        side.synchronize()
    said = {_of_tensors(out, x, y.detach()) for out, x in zip(found, [*given, *given], strict=True)}
    if len({out.data_ptr() for out in found}) != len(found):
        raise AssertionError("two results have the same memory")
    return "; ".join(sorted(said))


def counted_rows() -> str:
    """Machine code for more rows that takes their number: factors of rows, of blocks, and gradients of attention."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return f"not tried: {error}"
    said = []
    for kind in ("rows", "blocks"):
        for m in (100, 65):
            x, y = normal(m, 256, dtype=E4M3), normal(128, 256, dtype=E4M3, seed=1)
            shapes = ((m,), (128,)) if kind == "rows" else ((2, m), (1, 2))
            scales = [np.random.default_rng(n).uniform(0.5, 2, shape).astype(F32) for n, shape in enumerate(shapes)]
            wide = [each.T.repeat(128, 1) if kind == "blocks" else each[:, None] for each in scales]
            wide[1] = np.repeat(scales[1], 128, 0).repeat(128, 1) if kind == "blocks" else scales[1][:, None]
            tensors_ = [torch.from_numpy(each.view(np.uint8)).to("cuda:0").view(torch.float8_e4m3fn) for each in (x, y)]
            factors = [torch.from_numpy(each).to("cuda:0") for each in scales]
            got = hopper.matmul(*tensors_, transpose_rhs=True, x_scale=factors[0], y_scale=factors[1])
            wanted = product(x * wide[0], (y * wide[1]).T)
            said.append(f"{m} {kind} " + close(got.float().cpu().numpy(), wanted, ROUNDED))
    for m in (100, 65):
        q, k, v, grad = (normal(2, m, 64, seed=seed) for seed in range(4))
        given = [torch.from_numpy(each.astype(F32)).to("cuda:0").to(torch.bfloat16) for each in (q, k, v, grad)]
        out, lse = hopper.attention(*given[:3], causal=True, save_residuals=True)
        found = hopper.attention_vjp(*given[:3], out, lse, given[3], causal=True)
        _, _, *wanted = attention_reference(q, k, v, grad, True)
        said += [close(got.float().cpu().numpy(), want, 4 * ROUNDED) for got, want in zip(found, wanted, strict=True)]
    return "; ".join(said)


def _of_tensors(out: Any, x: Any, y: Any) -> str:
    out, x, y = (each.float().cpu().numpy() for each in (out, x, y))
    return close(out, product(x, y), ROUNDED)


def groups() -> str:
    """Grouped products: empty and unaligned groups, and rows after the last group."""
    said = []
    for sizes in ([100, 0, 300, 112], [1, 2, 3, 400], [0, 0, 0, 512], [0, 0, 0, 0]):
        lhs, rhs = normal(512, 128), normal(4, 128, 256, seed=1)
        wanted, row = np.zeros((512, 256)), 0
        for group, size in enumerate(sizes):
            wanted[row : row + size] = product(lhs[row : row + size], rhs[group])
            row += size
        got = hopper.gmm(lhs, rhs, np.int32(sizes), interpret="hopper")
        said.append(f"{sizes} " + close(got, wanted, ROUNDED))
    return "; ".join(said)


def attention() -> str:
    """Attention, causal and not."""
    said = []
    q, k, v = (normal(2, 300, 128, seed=seed) for seed in range(3))
    for causal in (False, True):
        scores = np.einsum("hmd,hnd->hmn", q.astype(np.float64), k.astype(np.float64)) / np.sqrt(128)
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = (weights / weights.sum(-1, keepdims=True)) @ v.astype(np.float64)
        got = hopper.attention(q, k, v, causal=causal, interpret="hopper")
        said.append(("causal " if causal else "") + close(got, wanted, 2 * ROUNDED))
    return "; ".join(said)


def transposed_groups() -> str:
    """Sums over the rows of groups, of which some are empty."""
    lhs, rhs, sizes = normal(128, 300), normal(300, 256, seed=1), [90, 0, 1, 200]
    wanted = tgmm_reference(lhs, rhs, sizes)
    return close(hopper.tgmm(lhs, rhs, np.int32(sizes), interpret="hopper"), wanted, ROUNDED)


def scaled_products() -> str:
    """Products of fp8 with factors, of rows in the epilogue and of blocks of 128 along k by sums outside of them."""
    said = []
    x, y = normal(256, 512, dtype=E4M3), normal(384, 512, dtype=E4M3, seed=1)
    for kind, shapes in (("rows", ((256,), (384,))), ("blocks", ((4, 256), (3, 4)))):
        x_scale, y_scale = (
            np.random.default_rng(n).uniform(0.5, 2, shape).astype(F32) for n, shape in enumerate(shapes)
        )
        if kind == "rows":
            own_x, own_y = x_scale[:, None], y_scale[:, None]
        else:
            own_x, own_y = np.repeat(x_scale.T, 128, 1), np.repeat(np.repeat(y_scale, 128, 0), 128, 1)
        got = hopper.matmul(x, y, transpose_rhs=True, x_scale=x_scale, y_scale=y_scale, interpret="hopper")
        said.append(f"{kind} " + close(got, product(x * own_x, (y * own_y).T), ROUNDED))
    return "; ".join(said)


def gathered_rows() -> str:
    """The expert layer: threads copy rows by cp.async, and those that wait for them order them before wgmma."""
    rows, h, i, experts = 300, 128, 64, 4
    x, up, down = normal(rows, h), normal(experts, h, 2 * i, seed=1), normal(experts, i, h, seed=2)
    draw = np.random.default_rng(0)
    ids, weights = draw.integers(0, experts, (rows, 2)).astype(np.int32), draw.random((rows, 2)).astype(F32)
    wanted = np.zeros((rows, h))
    for n, expert in np.ndindex(rows, 2):
        gate, value = np.split(product(x[n], up[ids[n, expert]]), 2)
        wanted[n] += weights[n, expert] * (gate / (1 + np.exp(-gate)) * value @ down[ids[n, expert]].astype(np.float64))
    return close(hopper.moe_mlp(x, ids, weights, up, down, interpret="hopper"), wanted, 2 * ROUNDED)


def attention_gradients() -> str:
    """The gradients of causal attention, with heads of keys that two heads of queries share."""
    q, grad, k, v = (normal(heads, 200, 128, seed=seed) for seed, heads in enumerate((2, 2, 1, 1)))
    out, lse, *wanted = attention_reference(q, k, v, grad, True)
    given = q, k, v, out.astype(BF16), lse.astype(F32), grad
    found = hopper.attention_vjp(*given, causal=True, interpret="hopper")
    return "; ".join(close(got, want, 2 * ROUNDED) for got, want in zip(found, wanted, strict=True))


def rows_in_registers() -> str:
    """Softmax and RMSNorm, of rows that a warpgroup holds and of longer ones."""
    said = []
    for columns in (1000, 12288):
        x, weight = normal(33, columns), normal(columns)
        wide = x.astype(np.float64)
        powers = np.exp(wide - wide.max(1, keepdims=True))
        wanted = powers / powers.sum(1, keepdims=True)
        said.append(f"softmax of {columns} " + close(hopper.softmax(x, interpret="hopper"), wanted, ROUNDED))
        wanted = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-6) * weight.astype(np.float64)
        got = hopper.rms_norm(x, weight, interpret="hopper")
        said.append(f"RMSNorm of {columns} " + close(got, wanted, ROUNDED))
    return "; ".join(said)


POINTS: dict[str, Callable[[], str]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(launch, copies, descriptors, dtypes_of_products, row_offsets, left_in_registers, register_pool, multicast),
        *(
            replaced_addresses,
            graphs,
            tensors,
            later_calls,
            fewer_rows,
            shared_scopes,
            groups,
            attention,
            gathered_rows,
            transposed_groups,
        ),
        *(scaled_products, attention_gradients, counted_rows, rows_in_registers),
    )
}
"""The points in the order of their runs: later ones depend on earlier ones."""
