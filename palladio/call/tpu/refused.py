"""Names of Pallas' TPU namespace that Palladio refuses, with their requirement and the alternative.

One table. The names exist so that ports find them; using one raises an error with the reason.
"""

from __future__ import annotations

from palladio.call.refused import Refused

_UNIT = "drives the matrix unit of a TPU, which no executor of Palladio has"
_PRODUCT = "write the product: jnp.dot(a, b)"
_FORMAT = "packs numbers as the registers of a TPU hold them"
_CONVERT = "convert with astype, and reinterpret bits with pltpu.bitcast"
_LOWERING = "belongs to the compiler of another system"
_PIPELINE = "is part of the machinery of another emitter"
_EMIT = "pltpu.emit_pipeline"

_REASONS: dict[str, tuple[str, str]] = {
    "matmul_push_rhs": (_UNIT, _PRODUCT),
    "matmul_acc_lhs": (_UNIT, _PRODUCT),
    "matmul_lhs_fifo": (_UNIT, _PRODUCT),
    "matmul_pop": (_UNIT, _PRODUCT),
    "matmul_pop_fifo": (_UNIT, _PRODUCT),
    "ACC": (_UNIT, "accumulate in pltpu.VMEM"),
    "conv": (_UNIT, "write it with slices and products"),
    "pack_fp6": (_FORMAT, _CONVERT),
    "unpack_fp6": (_FORMAT, _CONVERT),
    "join_bits": (_FORMAT, _CONVERT),
    "split_bits": (_FORMAT, _CONVERT),
    "einshape": ("rearranges the tiles of a TPU", "use reshape and transpose"),
    "trace_value": (_LOWERING, "pl.debug_print"),
    "annotate": (_LOWERING, "name the call: pallas_call(..., name=...)"),
    "LoweringException": (_LOWERING, "catch pl.PalladioError"),
    "has_memory_space": (_LOWERING, "ref.memory_space"),
    "BufferedRefBase": (_PIPELINE, "pltpu.BufferedRef"),
    "emit_pipeline_with_async_prefetch": (_PIPELINE, _EMIT),
}

REFUSED: dict[str, Refused] = {
    name: Refused(name, reason, instead, "pltpu") for name, (reason, instead) in _REASONS.items()
}
