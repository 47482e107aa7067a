"""Palladio's library as JAX functions: under `jit`, `grad`, `jvp`, `vmap` and `shard_map`, on the CPU.

    from palladio.interop.jax import gmm

Compiled programs call the kernels by XLA's foreign function interface, on the memory of XLA's own buffers. The products
are primitives of JAX with derivatives in both modes, to any order: the gradient of a grouped product is a
grouped product. Shapes and dtypes are checked when a function is traced. The values of traced group sizes are checked
when it runs; an error then is a `jax.errors.JaxRuntimeError` with the usual text and line.
"""

from palladio.interop.extras import missing

try:
    import jax  # noqa: F401  every module of this package needs it
except ImportError as error:
    raise missing("palladio.interop.jax", "JAX", "jax") from error

from palladio.interop.jax.experts import moe_mlp
from palladio.interop.jax.functions import attention, gmm, matmul, softmax, tgmm

__all__ = ["attention", "gmm", "matmul", "moe_mlp", "softmax", "tgmm"]
