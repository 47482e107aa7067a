"""A dense product as a Triton kernel. The interpreter needs `TRITON_INTERPRET=1` before Triton is imported."""

# Triton reads the annotations of its kernels when it compiles them: they must not be postponed.
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, y, out, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr):
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    columns = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    depth = tl.arange(0, tile_k)
    total = tl.zeros((tile_m, tile_n), tl.float32)
    x_tile = x + rows[:, None] * k + depth[None, :]
    y_tile = y + depth[:, None] * n + columns[None, :]
    for _ in range(0, k, tile_k):
        total += tl.dot(tl.load(x_tile), tl.load(y_tile))
        x_tile += tile_k
        y_tile += tile_k * n
    tl.store(out + rows[:, None] * n + columns[None, :], total)


def matmul(x: torch.Tensor, y: torch.Tensor, tiling: tuple[int, int, int]) -> torch.Tensor:
    """`x @ y` for `f32[m, k]` and `f32[k, n]`, whose sizes are multiples of the tiles `(tile_m, tile_k, tile_n)`."""
    (m, k), n = x.shape, y.shape[1]
    tile_m, tile_k, tile_n = tiling
    out = torch.empty((m, n), dtype=torch.float32)
    _kernel[(m // tile_m, n // tile_n)](x, y, out, n, k, tile_m, tile_n, tile_k)
    return out
