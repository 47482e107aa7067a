"""Names of Pallas' main and GPU namespaces that Palladio refuses, with their requirement and the alternative.

One table each. The names exist so that ports find them; using one raises an error with the reason.
"""

from __future__ import annotations

from typing import Any, NoReturn

from palladio.base.errors import PalladioNotImplementedError, at_call

_BLACKWELL = "needs a Blackwell GPU (sm_100), which no executor of Palladio has"
_ACCUMULATOR = "on Hopper accumulators are plgpu.ACC references in registers"
_PRODUCTS = "on Hopper use plgpu.wgmma and plgpu.wgmma_wait"
_READ = "read and write the accumulator: acc[...]"
_SCALES = "on Hopper scale the operands, or the accumulator after the product"
_SPARSE = "Hopper's sparse products are not offered; use dense operands"
_STEALING = "plgpu.dynamic_scheduling_loop deals out the grid on every GPU; plgpu.nd_loop does so in a fixed order"

_REASONS: dict[str, tuple[str, str]] = {
    "TMEM": (_BLACKWELL, _ACCUMULATOR),
    "TMEMLayout": (_BLACKWELL, _ACCUMULATOR),
    "async_copy_scales_to_tmem": (_BLACKWELL, _SCALES),
    "async_copy_smem_to_tmem": (_BLACKWELL, "on Hopper wgmma takes its operands from shared memory"),
    "async_copy_sparse_metadata_to_tmem": (_BLACKWELL, _SPARSE),
    "async_load_tmem": (_BLACKWELL, _READ),
    "async_store_tmem": (_BLACKWELL, _READ),
    "commit_tmem": (_BLACKWELL, _READ),
    "wait_load_tmem": (_BLACKWELL, _READ),
    "tcgen05_mma": (_BLACKWELL, _PRODUCTS),
    "tcgen05_commit_arrive": (_BLACKWELL, "on Hopper wait with plgpu.wgmma_wait, then plgpu.barrier_arrive"),
    "format_tcgen05_sparse_metadata": (_BLACKWELL, _SPARSE),
    "try_cluster_cancel": (_BLACKWELL, _STEALING),
    "query_cluster_cancel": (_BLACKWELL, _STEALING),
    "TryClusterCancelResult": (_BLACKWELL, _STEALING),
    "CopyPartition": (_BLACKWELL, "on Hopper the blocks of a cluster share a copy: collective_axes"),
    "im2col_ref": ("is not offered: its copies gather the windows of a convolution", "copy rows with pl.ds slices"),
    "wait_gmem_to_smem": (
        "belongs to Ampere, whose copies arrive at no barrier",
        "give copy_gmem_to_smem a barrier and call plgpu.barrier_wait(barrier)",
    ),
    "inline_mgpu": (
        "builds the MLIR of another compiler, which Palladio has not",
        "write it with the functions of palladio.gpu and palladio.numpy",
    ),
    "RefType": (
        "describes an operand of inline_mgpu, which builds the MLIR of another compiler",
        "hand references on as they are",
    ),
    "elementwise_inline_asm": (
        "inserts the assembly of another GPU's compiler",
        "write it with the functions of palladio.numpy",
    ),
    "dot": ("is of Pallas' Triton namespace", "jnp.dot(a, b), or a @ b"),
    "approx_tanh": ("is of Pallas' Triton namespace", "jnp.tanh(x)"),
    "debug_barrier": ("is of Pallas' Triton namespace", "leave it out; between warpgroups, plgpu.Barrier"),
    "max_contiguous": ("is of Pallas' Triton namespace, a promise for its compiler", "leave it out"),
    "print_layout": ("is not offered: layouts are chosen when a kernel is compiled", "ask for one: plgpu.layout_cast"),
    "PeerMemRef": ("belongs to the machinery of another compiler", "plgpu.remote_ref(ref, device_id)"),
}


class Refused:
    """A name that exists only to report why it cannot be used."""

    def __init__(self, name: str, reason: str, instead: str, namespace: str = "plgpu") -> None:
        self._name = name
        self._namespace = namespace
        self._reason = reason
        self._instead = instead
        self.__doc__ = f"Refused: {name} {reason}. Instead: {instead}."

    def __repr__(self) -> str:
        return f"<{self._namespace}.{self._name}: {self._reason}>"

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        with at_call():
            self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise PalladioNotImplementedError(f"{self._namespace}.{self._name} {self._reason}", hint=self._instead)


REFUSED: dict[str, Refused] = {name: Refused(name, *reason) for name, reason in _REASONS.items()}

_LOWERING = "belongs to the compiler of another system"

_COMMON: dict[str, tuple[str, str]] = {
    "enable_poison_buffers": (
        "is always on: memory that nothing has written reads as NaN, or the least integer",
        "leave it out",
    ),
    "semaphore": ("is the dtype of another system's semaphores", "pltpu.SemaphoreType, plgpu.SemaphoreType"),
    "lower_as_mlir": (_LOWERING, "palladio show prints what a kernel becomes"),
    "pallas_export_experimental": (_LOWERING, "call the kernel where it is needed"),
    "pallas_call_p": (_LOWERING, "pl.pallas_call"),
}

COMMON: dict[str, Refused] = {name: Refused(name, *reason, namespace="pl") for name, reason in _COMMON.items()}
