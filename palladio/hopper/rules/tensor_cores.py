"""Products of the tensor cores (wgmma), their waits, and their accumulators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioValueError
from palladio.hopper.emit.scope import Rule, Scope
from palladio.hopper.emit.values import Accumulator, Entry, Packed, Registers, Shared
from palladio.hopper.emit.views import Part, whole
from palladio.hopper.layouts.infer import left_layout
from palladio.hopper.layouts.integers import Index, added
from palladio.hopper.layouts.shared import SharedOperand
from palladio.hopper.rules.copies import start_of
from palladio.hopper.rules.memory import packed
from palladio.hopper.wgmma import COLUMNS, DEPTH_BYTES, INTEGER_COLUMNS, ROWS, Wgmma
from palladio.ir.core import Atom, Eqn, Var
from palladio.lower.refused import Refused
from palladio.types import dtypes
from palladio.types.transforms import Transform
from palladio.types.types import ArrayType

NAMES = {"bf16": "bf16", "f16": "f16", "f32": "tf32", "f8e4m3fn": "e4m3", "f8e5m2": "e5m2", "i8": "s8", "u8": "u8"}
ROW_GROUP = 8
UNPACKED = {"bf16": "pal::float_bf16((u16)({}))", "f16": "pal::float_f16((u16)({}))", "f32": "pal::float_of({})"}
"""The C expression of a float from the lower bits of a register."""


@dataclass(frozen=True)
class Matrix:
    """An operand in shared memory: its descriptor fields, start and size."""

    operand: SharedOperand
    base: Index
    rows: int
    depth: int


def _matrix(scope: Scope, atom: Atom, stack: Sequence[Transform], indices: Sequence[Atom], left: bool) -> Matrix:
    """An operand for the tensor cores, `[m, k]` or `[k, n]`."""
    found = scope.entry(atom)
    if not isinstance(found, Shared):
        raise Refused("wgmma reads its operands from shared memory")
    inner = scope.view(found, stack, indices)
    rows, columns = inner.axes
    last = len(found.type.shape) - 1
    turned = rows.axis == last
    across, along = (columns, rows) if turned else (rows, columns)
    if across.axis != last - 1 or along.axis != last or across.stride != 1 or along.stride != 1:
        raise Refused("wgmma multiplies the last two axes of a buffer", got=str(found.type))
    depth_is_last = turned != left  # [m, k] or [k, n]^T: the contracted axis is innermost
    layout = found.layout
    _aligned(inner, layout.span, found)
    if not depth_is_last and layout.itemsize != 2:
        raise PalladioValueError(
            "the tensor cores take operands transposed only if their elements have 16 bits",
            argument="the left operand of wgmma" if left else "the right operand of wgmma",
            expected="k as the last axis in shared memory",
            got=str(found.type),
            hint="keep it as [m, k]" if left else "keep it as [n, k] and multiply with ref.T (gmm: transpose_rhs)",
        )
    base = added(found.base, start_of(layout, inner))
    outer, depth = (rows.size, columns.size) if left else (columns.size, rows.size)
    return Matrix(SharedOperand(layout, not depth_is_last), base, outer, depth)


def _aligned(inner: Part, span: int, found: Shared) -> None:
    """Refuse parts that a descriptor cannot address: it starts at groups of 8 rows."""
    if inner.starts[-2].factor % ROW_GROUP:
        raise PalladioValueError(
            "an operand of the tensor cores begins at a multiple of 8 rows of its buffer",
            argument="wgmma",
            expected="a start that 8 divides",
            got=inner.starts[-2].at,
            hint="pl.multiple_of(start, 8) says so where it cannot be seen",
        )
    if inner.starts[-1].constant is None and inner.starts[-1].factor % span:
        raise PalladioValueError(
            "an operand of the tensor cores begins at a column that is known, or a multiple of a swizzled row",
            argument="wgmma",
            expected=f"a start that {span} divides",
            got=inner.starts[-1].at,
        )


def _columns(count: int, allowed: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split columns among instructions: (first, number) of each."""
    first = 0
    while first < count:
        size = max(size for size in allowed if size <= count - first)
        yield first, size
        first += size


def _part(acc: Accumulator, stack: Sequence[Transform]) -> tuple[int, int, int, int]:
    """The bounds of a static part of an accumulator: first row, rows, first column, columns."""
    part = whole(acc.type.shape).through(acc.type.dtype, stack, (), lambda operand: None)
    (first_row, first_column), axes = (start.constant for start in part.starts), part.axes
    if first_row is None or first_column is None or [(each.axis, each.stride) for each in axes] != [(0, 1), (1, 1)]:
        raise Refused("an accumulator is taken in slices only")
    rows, columns = part.sizes
    if first_row % ROWS or rows % ROWS or first_column % 8 or columns % 8:
        raise Refused(
            "a part of an accumulator is a multiple of 64 rows and of 8 columns",
            got=f"rows {first_row} to {first_row + rows}, columns {first_column} to {first_column + columns}",
        )
    return first_row, rows, first_column, columns


def _wgmma(scope: Scope, eqn: Eqn) -> None:
    acc, left, right, *indices = eqn.inputs
    own_stack, left_stack, right_stack = eqn.transforms
    target = scope.entry(acc)
    if not isinstance(target, Accumulator):
        raise Refused("wgmma adds to an accumulator")
    first_row, rows, first_column, columns = _part(target, own_stack)
    b = _matrix(scope, right, right_stack, indices, left=False)
    names = [NAMES[dtypes.short_name(atom.type.dtype)] for atom in (left, right)]
    result = {"int": "s32", "float": "f32", "u32": "f16"}[target.kind]
    allowed = INTEGER_COLUMNS if result == "s32" else COLUMNS
    w = scope.w
    in_registers = isinstance(left.type, ArrayType)
    pieces = _packed(scope, left) if in_registers else None
    a = None if in_registers else _matrix(scope, left, left_stack, indices, left=True)
    depth = left.type.shape[1] if in_registers else a.depth  # type: ignore[union-attr]
    step = DEPTH_BYTES // left.type.dtype.itemsize
    if depth % step:
        raise PalladioValueError(
            "the tensor cores sum over 32 bytes of each row at a time",
            argument="wgmma",
            expected=f"a multiple of {step} elements of {dtypes.short_name(left.type.dtype)}",
            got=depth,
        )
    if a is not None:
        start = w.fresh("left")
        w.compute(f"const u64 {start} = {_described(a)};")
    other = w.fresh("right")
    w.compute(f"const u64 {other} = {_described(b)};")
    w.line("pal::wgmma_fence();")
    flags = []
    for tile in range(first_row // ROWS, (first_row + rows) // ROWS):
        for first, count in _columns(columns, allowed):
            product = Wgmma(count, result, names[0], names[1], in_registers)
            scope.kernel.products.add(product)
            if product.transposes:
                flags = [*([] if a is None else [int(a.operand.transposed)]), int(b.operand.transposed)]
            listed = f"<{', '.join(map(str, flags))}>" if product.transposes else ""
            registers = _registers(target, tile, first_column + first, count)
            for at in range(0, depth, step):
                own = (tile - first_row // ROWS) * ROWS
                lhs = _left_pieces(pieces, left, at, own) if a is None else _moved(start, _left_step(a, at, own))
                rhs = _moved(other, b.operand.step(at) + _across(b, first))
                add = int(at > 0 or target.name not in scope.replaced)
                w.line(f"pal::{product.name}{listed}({registers}, {lhs}, {rhs}, {add});")
    scope.replaced.discard(target.name)
    w.line("pal::wgmma_commit();")
    scope.flight.append(target.name)
    for atom in (left, right):
        entry = scope.entry(atom)
        if isinstance(entry, Shared):
            scope.sites.read.add(entry.root)


def _registers(target: Accumulator, tile: int, column: int, count: int) -> str:
    name = f"{target.name}[{tile}]"
    if count == target.type.shape[1]:
        return name
    each = 2 * target.each
    return f"*({target.kind}(*)[{count // each}])&{name}[{column // each}]"


def _described(matrix: Matrix) -> str:
    operand = matrix.operand
    return f"pal::descriptor({matrix.base}, {operand.leading}, {operand.stride}, {operand.mode})"


def _moved(name: str, step: int) -> str:
    """A descriptor with its start advanced by bytes: the address field is in units of 16 bytes."""
    return f"{name} + {step // 16}" if step else name


def _left_step(a: Matrix, depth: int, row: int) -> int:
    layout = a.operand.layout
    if a.operand.transposed:
        return a.operand.step(depth) + row // layout.span * layout.block_bytes
    return a.operand.step(depth) + row * layout.swizzle


def _across(b: Matrix, column: int) -> int:
    """Bytes from the start of the right operand to a column, `[k, n]`."""
    layout = b.operand.layout
    if not b.operand.transposed:
        return column * layout.swizzle
    if column % layout.span:
        raise Refused("a product of more than 256 columns whose parts do not begin at swizzled rows")
    return column // layout.span * layout.block_bytes


# The left operand in registers.


def _packed(scope: Scope, left: Atom) -> str:
    """The elements of a left operand packed into 32-bit registers."""
    value = scope.materialised(left, left_layout(left.type), "operand")  # type: ignore[arg-type]
    if value.name in scope.packed:
        return scope.packed[value.name]
    target = Packed(scope.w.fresh(f"{value.name}_packed"), value.layout, left.type.dtype)
    _pack(scope, target, value, declared=False)
    return target.name


def _pack(scope: Scope, target: Packed, value: Registers, declared: bool) -> None:
    """Pack elements; no product is in flight while the registers of a left operand are written."""
    if scope.flight or scope.before:
        scope.wait_products(0)
    each, count = target.each, target.layout.count // target.each
    if not declared:
        scope.w.line(f"u32 {target.name}[{count}];")
    first = f"{each} * r" if each > 1 else "r"
    (text,) = packed([f"{value.name}[{first}{f' + {n}' if n else ''}]" for n in range(each)], target.dtype)
    scope.w.line(f"PAL_UNROLL for (int r = 0; r < {count}; ++r) {target.name}[r] = {text};")
    scope.w.line(f"pal::keep({target.name});")


def is_carried_packed(scope: Scope, var: Var) -> bool:
    """True for floats in the layout of a left operand, which a loop carries packed.

    They are then packed at the end of a step, so that a product that precedes theirs in the next step may be in flight.
    """
    type = var.type
    if not isinstance(type, ArrayType) or dtypes.short_name(type.dtype) not in UNPACKED or len(type.shape) != 2:
        return False
    return scope.layout(var).same(left_layout(type))


def carry_packed(scope: Scope, target: Packed, atom: Atom, declared: bool = True) -> None:
    """Give the registers of a loop's carry a value."""
    _pack(scope, target, scope.materialised(atom, target.layout, "operand"), declared)


def unpacked(scope: Scope, carried: Packed) -> Registers:
    """The value of a loop's carry at this point. It is unused if only products take it, and they take it packed."""
    name = scope.w.fresh(carried.name.removesuffix("_packed"))
    value = Registers(name, carried.layout, carried.dtype)
    word, half = ("r / 2", " >> 16 * (r % 2)") if carried.each == 2 else ("r", "")
    text = UNPACKED[dtypes.short_name(carried.dtype)].format(f"{carried.name}[{word}]{half}")
    scope.w.line(f"[[maybe_unused]] float {name}[{carried.layout.count}];")
    scope.packed[name] = carried.name
    return scope.fill(value, lambda r: text)


def _left_pieces(name: str | None, left: Atom, depth: int, row: int) -> str:
    """The four registers of a 64-row tile that is 32 bytes wide."""
    per_tile = left.type.shape[1] * left.type.dtype.itemsize // 8  # type: ignore[union-attr]
    first = row // ROWS * per_tile + depth * left.type.dtype.itemsize // 8
    return ", ".join(f"{name}[{first + n}]" for n in range(4))


# Accumulators.


def _wait(scope: Scope, eqn: Eqn) -> None:
    scope.wait_products(eqn.n)


def _load(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    acc = scope.entry(eqn.accumulator)
    if not isinstance(acc, Accumulator):
        raise Refused("this is loaded as an accumulator only")
    pending = eqn.wait_n
    if pending is not None and (scope.flight or scope.before):
        scope.wait_products(pending)
    first_row, rows, first_column, columns = _part(acc, eqn.transforms)
    (out,) = eqn.outputs
    own = left_layout(ArrayType((rows, columns), dtypes.BFLOAT16))
    target = scope.declare(out.hint or "part", own, out.type.dtype)
    tile = columns // 2
    row = f"{first_row // ROWS} + r / {tile}" if rows > ROWS else str(first_row // ROWS)
    register = "r" if rows == ROWS else f"r % {tile}"
    column = added(register, first_column // 2)
    if acc.each == 1:
        return [scope.fill(target, lambda r: f"{acc.name}[{row}][{column}]")]
    pair = f"{acc.name}[{row}][({column}) / 2]"
    return [scope.fill(target, lambda r: f"pal::float_f16((u16)({pair} >> 16 * (({column}) % 2)))")]


def _store(scope: Scope, eqn: Eqn) -> None:
    acc, value = eqn.inputs
    target = scope.entry(acc)
    if not isinstance(target, Accumulator):
        raise Refused("this is stored to as an accumulator only")
    if target.name in scope.flight or scope.before:
        scope.wait_products(0)
    layout = left_layout(ArrayType(target.type.shape, dtypes.BFLOAT16))
    x = scope.array(value, layout)
    tile, tiles = target.tile, target.type.shape[0] // ROWS
    halves = [scope.stored(x, f"2 * r + {n}", layout) for n in range(2)]
    new = f"pal::pack_f16({', '.join(halves)})" if target.each == 2 else scope.element(x, "r", layout)
    place = f"{target.name}[r / {tile}][r % {tile}]"
    scope.w.line(f"PAL_UNROLL for (int r = 0; r < {tiles * tile}; ++r) {place} = {new};")
    scope.w.line(scope.accumulators[target.name])


def _set_registers(scope: Scope, eqn: Eqn) -> None:
    """Record the register count; the role sets it once at its start, where its warps are convergent."""
    wanted = eqn.count, eqn.action
    if scope.registers not in (None, wanted):
        raise PalladioValueError(
            "threads that run one program set their registers once",
            argument="set_max_registers",
            expected=f"{scope.registers[0]} as before",  # type: ignore[index]
            got=wanted[0],
        )
    scope.registers = wanted


def _cast(scope: Scope, eqn: Eqn) -> Sequence[Entry]:
    (x,), (out,) = eqn.inputs, eqn.outputs
    if not eqn.outputs[0].type.shape:
        return [scope.entry(x)]
    return [scope.array(x, scope.layout(out))]


RULES: dict[str, Rule] = {
    "wgmma": _wgmma,
    "wgmma_wait": _wait,
    "accumulator_load": _load,
    "accumulator_store": _store,
    "set_max_registers": _set_registers,
    "layout_cast": _cast,
}
