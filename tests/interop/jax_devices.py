"""JAX with several devices: two CPUs in a separate process, which prints its results as JSON."""

from __future__ import annotations

import json
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 2)

import jax.numpy as jnp  # noqa: E402  devices are counted at their first use
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from palladio.interop.jax import attention, gmm, matmul, softmax, tgmm  # noqa: E402

SIZES = jnp.array([3, 0, 4, 2])


def array(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), jnp.float32)


X, W, Y = array(9, 6), array(4, 6, 8), array(9, 8)
MESH = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))


def placed(x: Any, *spec: str | None) -> Any:
    return jax.device_put(x, NamedSharding(MESH, PartitionSpec(*spec)))


def distance(found: Any, expected: Any) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b)) for a, b in pairs)


def spec(x: Any) -> str:
    return str(tuple(x.sharding.spec))


def columns() -> dict[str, Any]:
    """Weights sharded along n under plain `jit`: results, gradients, and how they are sharded."""
    shards = placed(W, None, None, "d")
    out = jax.jit(gmm)(X, shards, SIZES)
    loss = lambda x, w: (gmm(x, w, SIZES) ** 2).sum()
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))(X, shards)
    transposed = jax.jit(lambda x, w: gmm(x, w, SIZES, transpose_rhs=True))(Y, placed(W, None, "d", None))
    text = jax.jit(gmm).lower(X, shards, SIZES).compile().as_text()
    return {
        "distance": distance((out, gradients), (gmm(X, W, SIZES), jax.grad(loss, argnums=(0, 1))(X, W))),
        "transposed": distance(transposed, gmm(Y, W, SIZES, transpose_rhs=True)),
        "out": spec(out),
        "gathered": "all-gather" in text,
    }


def other_axes() -> dict[str, Any]:
    """Operands that are sharded as no rank can compute with alone, and dense products."""
    rows = jax.jit(gmm)(X[:8], placed(W, "d", None, None), jnp.array([3, 0, 3, 2]))
    dense = jax.jit(matmul)(placed(X[:8], "d", None), W[0])
    turned = jax.jit(lambda x, y: tgmm(x.T, y, SIZES))(X, placed(Y, None, "d"))
    shares = jax.jit(softmax)(placed(X[:8], "d", None))
    found = (rows, dense, turned, shares)
    expected = (gmm(X[:8], W, jnp.array([3, 0, 3, 2])), X[:8] @ W[0], tgmm(X.T, Y, SIZES), jax.nn.softmax(X[:8]))
    return {"distance": distance(found, expected), "dense": spec(dense)}


def leading_axes() -> dict[str, Any]:
    """Functions of the last axes, whose leading ones are sharded."""
    q, k, v = array(2, 4, 6, 5), array(2, 4, 7, 5, seed=1), array(2, 4, 7, 3, seed=2)
    attend = lambda q, k, v: attention(q, k, v, causal=True)
    parts = [placed(each, None, "d", None, None) for each in (q, k, v)]
    loss = lambda q, k, v: (attend(q, k, v) ** 2).sum()
    out, gradients = jax.jit(attend)(*parts), jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*parts)
    shares = jax.jit(softmax)(placed(X[:8], "d", None))
    text = (
        jax.jit(attend).lower(*parts).compile().as_text()
        + jax.jit(softmax).lower(placed(X[:8], "d", None)).compile().as_text()
    )
    expected = attend(q, k, v), jax.grad(loss, argnums=(0, 1, 2))(q, k, v), jax.nn.softmax(X[:8])
    rows = jax.jit(softmax)(placed(Y, None, "d"))
    mapped = jax.shard_map(softmax, mesh=MESH, in_specs=PartitionSpec("d"), out_specs=PartitionSpec("d"))
    return {
        "distance": distance((out, gradients, shares), expected),
        "columns": distance((rows, jax.jit(mapped)(X[:8])), (jax.nn.softmax(Y), jax.nn.softmax(X[:8]))),
        "attention": spec(out),
        "softmax": spec(shares),
        "gathered": "all-gather" in text,
    }


def shards_of_groups() -> dict[str, Any]:
    """`shard_map` over groups: each device has two of them, and its offset says which."""

    def part(x: Any, w: Any, sizes: Any) -> Any:
        own = gmm(x, w, sizes, group_offset=2 * jax.lax.axis_index("d"))
        return jax.lax.psum(own, "d")

    specs = (PartitionSpec(), PartitionSpec("d"), PartitionSpec())
    whole = jax.shard_map(part, mesh=MESH, in_specs=specs, out_specs=PartitionSpec())
    loss = lambda function: jax.jit(jax.grad(lambda x, w: (function(x, w, SIZES) ** 2).sum(), argnums=(0, 1)))
    return {
        "distance": distance(jax.jit(whole)(X, W, SIZES), gmm(X, W, SIZES)),
        "gradients": distance(loss(whole)(X, W), loss(gmm)(X, W)),
    }


if __name__ == "__main__":
    print(json.dumps({each.__name__: each() for each in (columns, other_axes, leading_axes, shards_of_groups)}))
