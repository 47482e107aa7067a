"""Names of JAX that Palladio lacks: an error at the line that uses one, never at the import."""

from __future__ import annotations

from typing import Any, NoReturn

from palladio.base.calls import hide_internal_frames
from palladio.base.errors import PalladioError, PalladioNotImplementedError, at_call

INSTEAD = {
    "jax.Array": "np.ndarray; annotations of arguments decide nothing",
    "jax.block_until_ready": "leave it out: a result is there when the call returns",
    "jax.config": "leave it out: 64-bit dtypes are always on",
    "jax.custom_vjp": "only palladio.compat has it; interop.torch.op and interop.jax take backward kernels",
    "jax.default_backend": "leave it out: kernels run on the CPU, or where pl.executor says",
    "jax.default_device": "leave it out: pl.executor says where kernels run",
    "jax.device_count": "the number of devices of the mesh that pl.make_mesh makes",
    "jax.device_put": "leave it out: kernels take NumPy arrays",
    "jax.devices": "leave it out: kernels run on the CPU, or where pl.executor says",
    "jax.experimental.pallas.dot": "x @ y",
    "jax.experimental.pallas.store": "palladio.gpu.store(ref, value, idx=index, mask=mask)",
    "jax.experimental.pallas.swap": "old = ref[index], then ref[index] = value",
    "jax.experimental.shard_map": "pl.shard_map",
    "jax.grad": "only palladio.compat has it; palladio.interop has gradients of the library",
    "jax.lax.pvary": "leave it out: devices run the same program",
    "jax.lax.with_sharding_constraint": "leave it out: pl.shard_map divides arrays",
    "jax.make_jaxpr": "only palladio.compat has it; call.program(x) of a kernel call is its program",
    "jax.named_scope": "leave it out: reports and timelines name lines of the kernel",
    "jax.pmap": "kernels run on one machine; palladio.tpu simulates copies between devices",
    "jax.profiler": "palladio timeline FILE.py::FUNCTION draws what a kernel does when",
    "jax.random": "numpy.random.default_rng(seed), outside of kernels",
    "jax.scipy": "scipy itself, outside of kernels",
    "jax.tree": "optree, which Palladio uses",
    "jax.tree_util": "optree, which Palladio uses",
    "jax.value_and_grad": "only palladio.compat has it; palladio.interop has gradients of the library",
}
"""The replacement to suggest for a name that Palladio lacks, or that only `palladio.compat` has.

An entry also covers the names inside it, `jax.profiler.trace`.
"""


class Missing:
    """A missing name. Its attributes are missing too; any other use is an error."""

    def __init__(self, name: str) -> None:
        self.palladio_name = name

    def __repr__(self) -> str:
        return f"<{self.palladio_name}, which Palladio does not have>"

    def __getattr__(self, name: str) -> Missing:
        if name.startswith(("__", "palladio_")):
            raise AttributeError(name)
        return Missing(f"{self.palladio_name}.{name}")

    def __hash__(self) -> int:
        return hash(self.palladio_name)

    def __or__(self, other: Any) -> Missing:
        return self  # an annotation

    __ror__ = __getitem__ = __or__

    def __instancecheck__(self, value: Any) -> bool:
        return False


def _refuse(missing: Missing, *_: Any, **__: Any) -> NoReturn:
    name = missing.palladio_name
    try:
        with at_call():
            raise PalladioNotImplementedError(f"Palladio has no {name}", hint=instead(name))
    except PalladioError as error:
        hide_internal_frames(error)
        raise


def instead(name: str) -> str:
    """The advice for a missing name of JAX."""
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        if (known := INSTEAD.get(".".join(parts[:count]))) is not None:
            return known
    return "docs/porting.md lists what there is"


_USES = (
    *("call", "enter", "contains", "iter", "next", "len", "bool", "int", "float", "index"),
    *("subclasscheck", "mro_entries", "eq", "ne", "lt", "le", "gt", "ge", "neg", "invert"),
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "xor", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "rxor"),
)
for _name in _USES:
    setattr(Missing, f"__{_name}__", _refuse)
