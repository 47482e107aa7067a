"""The tensor cores in a kernel: `wgmma`, its waits and accumulators."""

from __future__ import annotations

from typing import Any

from palladio.array import convert
from palladio.base.errors import PalladioTypeError
from palladio.ir.bind import bind, type_of
from palladio.ops.arrays import arithmetic
from palladio.ops.arrays import dot as dot_ops
from palladio.ops.threads import wgmma as ops
from palladio.trace.gpu.hardware import check_operands, limits_enabled
from palladio.trace.reference import Reference, reached, require_reference
from palladio.trace.trace import require_trace
from palladio.types.types import ACC


def wgmma(acc: Any, a: Any, b: Any) -> None:
    """Start `acc += a @ b` on the tensor cores and return immediately.

    Args:
        acc: an accumulator reference, whole or at a static slice: `f32[m, n]`; also f16 for f16 and 8-bit floats;
            i32 for i8 and u8.
        a: a reference to shared memory `dtype[m, k]`, or an array in registers. f16, bf16, f32 (which the hardware
            rounds to tf32 and the simulator does not), f8e4m3fn, f8e5m2, i8 or u8.
        b: a reference to shared memory `dtype[k, n]`, of the dtype of `a`; 8-bit floats may differ.

    Raises:
        PalladioTypeError: not an accumulator or a reference to shared memory; dtypes that do not go together.
        PalladioValueError: shapes that are not those of a product; under `enable_hardware_limits`, a product that the
            hardware cannot compute.
    """
    accumulator = require_reference(acc, "acc")
    require_reference(b, "b")
    if not isinstance(a, Reference):
        convert.array_type(a)
    roots, stacks, operands = reached(accumulator, a, b)
    if limits_enabled():
        left = a.array if isinstance(a, Reference) else convert.array_type(a)
        check_operands(accumulator.array, type_of(roots[1]), type_of(roots[2]), left)
    bind(ops.wgmma, *roots, *operands, transforms=stacks)


def wgmma_wait(n: int) -> None:
    """Wait until at most `n` products of this warpgroup are in flight.

    Raises:
        PalladioValueError: `n` is not an integer known when the kernel is traced, or negative.
    """
    require_trace("wgmma_wait")
    bind(ops.wgmma_wait, n=n)


def wgmma_accumulator_load(acc: Any, *, wait_n: int | None = 0) -> Any:
    """The value of an accumulator `dtype[m, n]`.

    Args:
        wait_n: how many products may still be in flight; None does not wait, since the caller has.

    Raises:
        PalladioTypeError: not an accumulator; a part that is not static.
        PalladioValueError: a negative number of products.
    """
    accumulator = require_reference(acc, "acc")
    if accumulator.memory_space is not ACC:
        raise PalladioTypeError("this is not an accumulator", argument="acc", got=repr(acc))
    operands = accumulator.operands
    return bind(ops.accumulator_load, accumulator.root, *operands, transforms=accumulator.transforms, wait_n=wait_n)[0]


def mma(acc: Any, a: Any, b: Any, /) -> Any:
    """`acc + a @ b` on arrays, synchronous.

    Args:
        acc: `f32[m, n]`; also f16 for f16 and 8-bit floats; i32 for i8 and u8.
        a, b: `dtype[m, k]` and `dtype[k, n]`.

    Raises:
        PalladioTypeError: dtypes that the tensor cores do not multiply or accumulate.
        PalladioValueError: shapes that are not those of a product.
    """
    kinds = [convert.array_type(each) for each in (acc, a, b)]
    ops.check_product(*kinds)
    product = bind(dot_ops.dot_general, a, b, contracting=((1,), (0,)), batch=((), ()), dtype=kinds[0].dtype)[0]
    return bind(arithmetic.add, acc, product)[0]


def set_max_registers(n: int, *, action: str) -> None:
    """Set the registers of each of the warpgroup's threads (setmaxnreg).

    Args:
        n: a multiple of 8 from 24 to 256.
        action: "increase", which waits until they are free, or "decrease".

    Raises:
        PalladioValueError: another number or action; outside of a kernel.
    """
    require_trace("set_max_registers")
    bind(ops.set_max_registers, count=n, action=action)
