"""The tensor cores: asynchronous products that add to an accumulator reference.

An accumulator lives in the registers of one warpgroup. Until a wait returns, a product in flight may read its operands
and change its accumulator at any time. `eval` multiplies immediately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from palladio.base.errors import PalladioTypeError, PalladioValueError
from palladio.ir.core import Atom, DischargeContext, Discharged, Op, Work
from palladio.ops.arrays import arithmetic, dot
from palladio.ops.references import access, memory
from palladio.ops.references.memory import Transforms, inserted, part_of, require_like
from palladio.ops.threads.copy import nothing_eval, require_pending, require_space
from palladio.types import dtypes
from palladio.types.device import H100_SXM
from palladio.types.dtypes import DType
from palladio.types.effects import AsyncKind, Effect, Sync, read, write
from palladio.types.layouts import RegisterLayout
from palladio.types.transforms import is_static_path
from palladio.types.types import ACC, SMEM, ArrayType, RefType, Type

Stacks = tuple[Transforms, ...]
_MATRIX: dict[str, Any] = {"contracting": ((1,), (0,)), "batch": ((), ())}
_EIGHT_BIT_FLOATS = frozenset({dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2})

# The operand dtypes of sm_90's tensor cores, and their accumulator dtypes; f32 operands are tf32.
ACCUMULATORS: dict[DType, tuple[DType, ...]] = {
    dtypes.BFLOAT16: (dtypes.FLOAT32,),
    dtypes.FLOAT16: (dtypes.FLOAT32, dtypes.FLOAT16),
    dtypes.FLOAT32: (dtypes.FLOAT32,),
    dtypes.FLOAT8_E4M3FN: (dtypes.FLOAT32, dtypes.FLOAT16),
    dtypes.FLOAT8_E5M2: (dtypes.FLOAT32, dtypes.FLOAT16),
    dtypes.SHORT_NAMES["i8"]: (dtypes.INT32,),
    dtypes.SHORT_NAMES["u8"]: (dtypes.INT32,),
}


def _operand(what: str, root: Type, stack: Transforms, indices: Sequence[Type], array_too: bool) -> ArrayType:
    if isinstance(root, ArrayType) and array_too:
        return root
    require_space(what, root, SMEM)
    return part_of(root, stack, indices)


def check_product(acc: ArrayType, a: ArrayType, b: ArrayType) -> None:
    """Refuse operands and accumulators that the tensor cores do not support."""
    fit = acc.ndim == a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and acc.shape == (a.shape[0], b.shape[1])
    if not fit:
        raise PalladioValueError(
            "the shapes are not those of a product", expected="acc[m, n], a[m, k], b[k, n]", got=f"{acc}, {a}, {b}"
        )
    if a.dtype != b.dtype and not {a.dtype, b.dtype} <= _EIGHT_BIT_FLOATS:
        raise PalladioTypeError("the operands of a product have one dtype", got=f"{a} and {b}")
    wanted = ACCUMULATORS.get(a.dtype)
    if wanted is None:
        names = ", ".join(dtypes.short_name(dtype) for dtype in ACCUMULATORS)
        raise PalladioTypeError("the tensor cores do not multiply this dtype", expected=names, got=str(a))
    if acc.dtype not in wanted:
        names = " or ".join(map(dtypes.short_name, wanted))
        raise PalladioTypeError(
            f"products of {dtypes.short_name(a.dtype)} are accumulated in {names}", argument="acc", got=str(acc)
        )


def _wgmma_type(accumulator: Type, a: Type, b: Type, *indices: Type, transforms: Stacks) -> Sequence[Type]:
    if not isinstance(accumulator, RefType) or accumulator.space is not ACC:
        raise PalladioTypeError(
            "wgmma adds to an accumulator", argument="acc", expected="a plgpu.ACC reference", got=str(accumulator)
        )
    require_static(transforms[0])
    check_product(
        part_of(accumulator, transforms[0], indices),
        _operand("the left operand of wgmma", a, transforms[1], indices, True),
        _operand("the right operand of wgmma", b, transforms[2], indices, False),
    )
    return ()


def require_static(stack: Transforms) -> None:
    """Refuse a part of an accumulator that is not a static slice: registers have no addresses."""
    if not is_static_path(stack):
        raise PalladioTypeError(
            "can only dereference accumulators, not slice them at an index known only when the kernel runs",
            hint="take the whole accumulator, acc[...], or a part with static bounds",
        )


def multiplied(acc: Any, a: Any, b: Any, out: Any = None) -> Any:
    """acc + a @ b in the accumulator's dtype, in `out` if given; float operands are multiplied in float32."""
    product = dot.dot_general.eval(a, b, **_MATRIX, dtype=acc.dtype)[0]
    return acc + product if out is None else np.add(acc, product, out=out)


def _wgmma_eval(acc: Any, a: Any, b: Any, *indices: Any, transforms: Stacks) -> Sequence[Any]:
    part = access.read(acc, transforms[0], indices)
    left = access.read(a, transforms[1], indices)
    part[...] = multiplied(part, left, access.read(b, transforms[2], indices))
    return ()


def _wgmma_effects(acc: Type, a: Type, b: Type, *indices: Type, **_: Any) -> Iterator[Effect]:
    yield from (read(0), write(0))
    yield from (read(n) for n, operand in enumerate((a, b), 1) if isinstance(operand, RefType))


def _wgmma_discharge(
    context: DischargeContext, acc: Atom, a: Atom, b: Atom, *indices: Atom, transforms: Stacks
) -> Discharged:
    """A product of values; operands that stay references are loaded."""
    operands = []
    for operand, stack in zip((a, b), transforms[1:], strict=True):
        reads = memory.load if isinstance(operand.type, RefType) else memory.extract
        whole = not stack and reads is memory.extract
        operands.append(operand if whole else context.emit(reads, operand, *indices, transforms=stack)[0])
    part = context.emit(memory.extract, acc, transforms=transforms[0])[0] if transforms[0] else acc
    product = context.emit(dot.dot_general, *operands, **_MATRIX, dtype=part.type.dtype)[0]
    total = context.emit(arithmetic.add, part, product)[0]
    return Discharged((), {0: inserted(context, acc, total, (), transforms[0], "set")})


wgmma = Op(
    "wgmma",
    "Starts acc[m, n] += a[m, k] @ b[k, n] and returns. `b`, and `a` unless it is an array, are in shared memory. "
    "Every wgmma is a group of its own.",
    _wgmma_type,
    _wgmma_eval,
    effects=_wgmma_effects,
    sync=Sync(issues=AsyncKind.WGMMA),
    work=Work.PRODUCT,
    dtypes=", ".join(map(dtypes.short_name, ACCUMULATORS)),
    discharge=_wgmma_discharge,
    ref_count=3,
)


def _wait_type(*, n: int) -> Sequence[Type]:
    require_pending("wgmma_wait", n)
    return ()


wgmma_wait = Op(
    "wgmma_wait",
    "Waits until at most `n` products of this warpgroup are in flight.",
    _wait_type,
    nothing_eval,
    sync=Sync(waits=AsyncKind.WGMMA),
)


def _load_type(accumulator: Type, *indices: Type, transforms: Transforms, wait_n: int | None) -> Sequence[Type]:
    root = require_space("what is loaded as an accumulator", accumulator, ACC)
    require_static(transforms)
    if wait_n is not None:
        require_pending("an accumulator load", wait_n)
    return (part_of(root, transforms, indices),)


def _load_eval(acc: Any, *, transforms: Transforms, wait_n: int | None) -> Sequence[Any]:
    return (np.array(access.read(acc, transforms, ())),)


def _load_discharge(context: DischargeContext, acc: Atom, *, transforms: Transforms, wait_n: int | None) -> Discharged:
    return Discharged(context.emit(memory.extract, acc, transforms=transforms) if transforms else (acc,))


accumulator_load = Op(
    "accumulator_load",
    "value = acc[transforms], when at most `wait_n` products of this warpgroup are in flight; None waits for nothing.",
    _load_type,
    _load_eval,
    effects=(read(0),),
    sync=Sync(waits=AsyncKind.WGMMA),
    work=Work.NONE,
    discharge=_load_discharge,
)


def _store_type(accumulator: Type, value: Type) -> Sequence[Type]:
    root = require_space("what is stored to as an accumulator", accumulator, ACC)
    require_like("the value", value, root.array)
    return ()


def _store_eval(acc: Any, value: Any) -> Sequence[Any]:
    acc[...] = value
    return ()


accumulator_store = Op(
    "accumulator_store",
    "acc[...] = value",
    _store_type,
    _store_eval,
    effects=(write(0),),
    sync=Sync(fences=True),
    work=Work.NONE,
    discharge=lambda context, acc, value: Discharged((), {0: value}),
)


def _registers_type(*, count: int, action: str) -> Sequence[Type]:
    unit, least, most = H100_SXM.register_unit, H100_SXM.least_registers, H100_SXM.thread_registers
    if not isinstance(count, int) or count % unit or not least <= count <= most:
        raise PalladioValueError(
            f"registers are set to a multiple of {unit} from {least} to {most} for each thread",
            argument="n",
            got=repr(count),
        )
    if action not in ("increase", "decrease"):
        raise PalladioValueError(
            "no such action", argument="action", expected='"increase" or "decrease"', got=repr(action)
        )
    return ()


set_max_registers = Op(
    "set_max_registers",
    "Sets the registers of each of the warpgroup's 128 threads to `count`; an increase waits until they are free.",
    _registers_type,
    nothing_eval,
    sync=Sync(registers=True),
)


def _layout_type(x: Type, *, layout: RegisterLayout) -> Sequence[Type]:
    if not isinstance(x, ArrayType):
        raise PalladioTypeError("a layout is that of an array", got=str(x))
    return (x,)


layout_cast = Op(
    "layout_cast",
    "The same array, asked to be spread over the threads' registers in a layout.",
    _layout_type,
    lambda x, *, layout: (x,),
    work=Work.NONE,
)
