"""Random typed programs, for hypothesis to draw and to shrink.

The generator knows operations by what their records say, not by name: those that reach into memory through transforms
(`Op.index_start`), those that run sub-programs, and all others, whose operand dtypes it finds by trying the type rule.
A new operation is drawn as soon as it is in `ALL_OPS`, if its parameters are among `PARAMETERS`.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from palladio.base.errors import PalladioError
from palladio.ir.bind import form
from palladio.ir.core import Atom, Eqn, Literal, Op, Program, Var
from palladio.ops import ALL_OPS, OPS
from palladio.ops.references.memory import COMBINERS
from palladio.types import dtypes
from palladio.types.dtypes import SHORT_NAMES, DType
from palladio.types.transforms import (
    Bitcast,
    Index,
    IndexEntry,
    Operand,
    Reshape,
    SliceEntry,
    Transform,
    Transpose,
    transformed,
)
from palladio.types.types import ANY, SMEM, ArrayType, RefType, Type

T = TypeVar("T")

DTYPES: tuple[DType, ...] = tuple(SHORT_NAMES[name] for name in ("f32", "i32", "bool", "bf16", "u8", "i64", "f16"))
SHAPES: tuple[tuple[int, ...], ...] = ((), (4,), (2, 4), (3,))
INT32 = dtypes.INT32
DEPTH = 2
"""How deep control flow nests."""

NOT_DRAWN: dict[str, str] = {
    "debug_print": "it prints",
    "debug_check": "it fails where its condition is false",
    "grid_call": "its blocks are drawn by the tests of calls",
    "dot_accumulate": "the shape of its first operand follows from those of the others",
    "zero_outside": "it promises something of values, which those of the fuzzer would break",
    "tee": "the equation after it must be a reduction of rows",
    "store_rows": "its mask is the same in all of a row, which those of the fuzzer are not",
    "initialize": "it is of blocks of outputs, which are drawn by the tests of calls",
    "layout_cast": "it says where the compiler may keep a value, and changes none",
    **dict.fromkeys(
        (
            *("launch", "collective_scope", "barrier_arrive", "barrier_wait", "barrier_sync", "barrier_test"),
            *("semaphore_signal", "semaphore_wait", "semaphore_read", "dma_start", "dma_start_remote", "dma_wait"),
            *("copy_gmem_to_smem", "copy_smem_to_gmem", "commit_smem_to_gmem_group", "wait_smem_to_gmem"),
            *("commit_smem", "commit_gmem", "async_prefetch", "async_store_smem", "set_max_registers"),
            *("griddepcontrol_wait", "griddepcontrol_launch_dependents"),
        ),
        "it orders threads and copies: drawn at random, nearly every program races or waits for ever",
    ),
    **dict.fromkeys(
        ("wgmma", "wgmma_wait", "accumulator_load", "accumulator_store"),
        "its operands lie in accumulators, and those are not among the drawn references",
    ),
}
"""Operations that no random program has, and why."""


class Generator:
    """Draws one program. Everything random comes from hypothesis, so that a failure shrinks."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    def integer(self, least: int, greatest: int) -> int:
        return self.draw(st.integers(least, greatest))

    def pick(self, items: Sequence[T]) -> T:
        return items[self.integer(0, len(items) - 1)]

    def flag(self) -> bool:
        return bool(self.integer(0, 1))

    def some(self, items: Sequence[T], most: int) -> list[T]:
        """A few of the items, none of them twice."""
        left, found = list(items), []
        for _ in range(self.integer(0, min(most, len(left)))):
            found.append(left.pop(self.integer(0, len(left) - 1)))
        return found

    def array_type(self) -> ArrayType:
        return ArrayType(self.pick(SHAPES), self.pick(DTYPES))

    def ref_type(self) -> RefType:
        array = self.array_type()
        return RefType(array.shape, array.dtype, self.pick((ANY, SMEM)))

    def program(self) -> Program:
        """A program over a few references and arrays, with a small loop bound among its inputs."""
        inputs = [Var(self.ref_type(), f"r{n}") for n in range(self.integer(1, 3))]
        inputs += [Var(self.array_type(), f"x{n}") for n in range(self.integer(1, 3))]
        bound = Var(ArrayType((), INT32), "n")
        block = Block(self, [*inputs, bound], DEPTH)
        block.fill(self.integer(1, 8))
        outputs = [block.array(var.type) for var in self.some(block.arrays, 3)]
        return Program((*inputs, bound), tuple(block.eqns), tuple(outputs), "random")


class Block:
    """A program under construction: what may be used in it, and its equations so far."""

    def __init__(self, generator: Generator, inputs: Sequence[Var], depth: int) -> None:
        self.generator = generator
        self.inputs = tuple(inputs)
        self.depth = depth
        self.arrays = [var for var in inputs if isinstance(var.type, ArrayType)]
        self.refs = [var for var in inputs if isinstance(var.type, RefType)]
        self.eqns: list[Eqn] = []

    def emit(self, op: Op, *inputs: Atom, **params: Any) -> tuple[Var, ...]:
        eqn = form(op, inputs, params, None)
        self.eqns.append(eqn)
        self.arrays += eqn.outputs
        return eqn.outputs

    def program(self, outputs: Sequence[Atom]) -> Program:
        return Program(self.inputs, tuple(self.eqns), tuple(outputs), "inner")

    def fill(self, count: int) -> None:
        """Add equations."""
        for _ in range(count):
            kind = self.generator.integer(0, 9)
            if kind < 4:
                self.access()
            elif kind < 8 or self.depth == 0:
                self.compute()
            else:
                self.control()

    # Values.

    def literal(self, dtype: DType) -> Literal:
        choices = (0, 1, 2, -1, -0.0, 1.5, float("inf"), float("nan")) if dtypes.is_float(dtype) else (0, 1, 2, 3)
        return Literal(self.generator.pick(choices), dtype)

    def scalar(self, dtype: DType) -> Atom:
        found: list[Atom] = [var for var in self.arrays if var.type == ArrayType((), dtype)]
        return self.generator.pick(found) if found and self.generator.flag() else self.literal(dtype)

    def array(self, type: Type) -> Atom:
        """A value of a type: one that there is, or a new one."""
        assert isinstance(type, ArrayType)
        found = [var for var in self.arrays if var.type == type]
        if found and self.generator.integer(0, 4):
            return self.generator.pick(found)
        if not type.shape:
            return self.scalar(type.dtype)
        return self.emit(OPS["broadcast"], self.scalar(type.dtype), shape=type.shape, axes=())[0]

    def index(self, extent: int) -> Atom:
        """A scalar integer, mostly inside an axis."""
        found: list[Atom] = [var for var in self.arrays if not var.type.shape and dtypes.is_integer(var.type.dtype)]
        if found and self.generator.flag():
            return self.generator.pick(found)
        return Literal(self.generator.integer(-1, extent), INT32)

    # Access paths.

    def path(self, array: ArrayType) -> tuple[tuple[Transform, ...], list[Atom], ArrayType]:
        """Transforms, their index operands, and the type of what they select."""
        found: list[Transform] = []
        operands: list[Atom] = []
        for _ in range(self.generator.integer(0, 3)):
            transform = self.transform(array, operands)
            try:
                array = transformed(array, [transform], [atom.type for atom in operands])  # type: ignore[misc]
            except PalladioError:
                break
            found.append(transform)
        used = sum(_operand_count(transform) for transform in found)
        return tuple(found), operands[:used], array

    def transform(self, array: ArrayType, operands: list[Atom]) -> Transform:
        kind = self.generator.integer(0, 6)
        if kind < 4:
            return self.indexing(array, operands)
        if kind == 4:
            half = (2, array.size // 2) if array.size % 2 == 0 else (array.size,)
            return Reshape(self.generator.pick([(array.size,), half, array.shape[::-1]]))
        if kind == 5:
            return Transpose(tuple(self.generator.draw(st.permutations(range(array.ndim)))))
        return Bitcast(self.generator.pick([dtype for dtype in DTYPES if dtype != dtypes.BOOL]))

    def indexing(self, array: ArrayType, operands: list[Atom]) -> Index:
        gathered = [var for var in self.arrays if var.type.ndim == 1 and dtypes.is_integer(var.type.dtype)]
        together = [var for var in gathered if var.type.shape == gathered[0].type.shape]
        return Index(tuple(self.entry(extent, operands, together) for extent in array.shape))

    def entry(self, extent: int, operands: list[Atom], gathered: Sequence[Var]) -> IndexEntry:
        kind = self.generator.integer(0, 6)
        if kind == 1 and extent:
            return self.generator.integer(0, extent - 1)
        if kind == 2:
            stride = self.generator.integer(1, 2)
            size = self.generator.integer(0, (extent + stride - 1) // stride)
            last = (size - 1) * stride
            return SliceEntry(self.generator.integer(0, extent - 1 - last) if size else 0, size, stride)
        if kind in (3, 4) or (kind == 5 and gathered):
            operands.append(self.generator.pick(gathered) if kind == 5 else self.index(extent))
            operand = Operand(len(operands) - 1)
            if kind != 4:
                return operand
            return SliceEntry(operand, self.generator.integer(0, extent), self.generator.integer(1, 2))
        return SliceEntry(0, extent)

    # Equations.

    def access(self) -> None:
        """An operation that reaches into memory or an array through transforms."""
        op = self.generator.pick([op for op in ALL_OPS if op.index_start and op.name not in NOT_DRAWN])
        roots: list[Var] = self.refs if op.effects else self.arrays
        if not roots:
            return
        root = self.generator.pick(roots)
        array = root.type.array if isinstance(root.type, RefType) else root.type
        transforms, indices, part = self.path(array)
        fixed = [self.array(_fixed_type(op, n, part)) for n in range(1, op.index_start)]
        params = {"kind": self.generator.pick(["set", "exchange", *COMBINERS])} if "kind" in keywords(op) else {}
        try:
            self.emit(op, root, *fixed, *indices, transforms=transforms, **params)
        except PalladioError:
            return

    def compute(self) -> None:
        """Any other operation without sub-programs, on operands that its type rule takes."""
        op = self.generator.pick(computing())
        wanted = self.generator.pick(signatures(op))
        shape = self.generator.pick([var.type.shape for var in self.arrays] or [(4,)])
        scalar_last = "padding" in keywords(op)
        shapes = [shape] * (len(wanted) - 1) + [() if scalar_last else shape]
        operands = [self.array(ArrayType(each, dtype)) for each, dtype in zip(shapes, wanted, strict=False)]
        types = [atom.type for atom in operands]
        params = {name: PARAMETERS[name](self.generator, types) for name in keywords(op)}
        try:
            self.emit(op, *operands, **params)
        except PalladioError:
            return

    def control(self) -> None:
        """Control flow that captures a few arrays and references."""
        captured = [*self.generator.some(self.arrays, 3), *self.generator.some(self.refs, 2)]
        draw = self.generator.pick([_cond, _loop, _repeat, _scope])
        draw(self, captured)

    def inner(self, captured: Sequence[Var], before: Sequence[Type] = (), after: Sequence[Type] = ()) -> Block:
        """The block of a sub-program, with inputs before and after the captured ones."""
        types = [*before, *(var.type for var in captured), *after]
        block = Block(self.generator, [Var(type) for type in types], self.depth - 1)
        block.fill(self.generator.integer(0, 3))
        return block

    def types(self, most: int) -> list[Type]:
        return [var.type for var in self.generator.some(self.arrays, most)]


def _cond(block: Block, captured: Sequence[Var]) -> None:
    returned = block.types(2)
    branches = []
    for _ in range(block.generator.integer(1, 3)):
        inner = block.inner(captured)
        branches.append(inner.program([inner.array(type) for type in returned]))
    block.emit(OPS["cond"], block.scalar(INT32), *captured, branches=tuple(branches))


def _loop(block: Block, captured: Sequence[Var]) -> None:
    generator = block.generator
    bound = Literal(generator.integer(0, 3), INT32)
    carry = block.types(2)
    initial = [block.array(type) for type in carry]
    inner = block.inner(captured, [ArrayType((), INT32)], carry)
    body = inner.program([inner.array(type) for type in carry])
    block.emit(
        OPS["loop"],
        Literal(generator.integer(-1, 1), INT32),
        bound,
        *captured,
        *initial,
        body=body,
        constants=len(captured),
        step=generator.integer(1, 2),
        unroll=generator.integer(0, 2),
    )


def _repeat(block: Block, captured: Sequence[Var]) -> None:
    carry = [ArrayType((), INT32), *block.types(2)]
    initial = [Literal(0, INT32), *(block.array(type) for type in carry[1:])]
    inner = block.inner(captured, (), carry)
    counter = inner.inputs[len(captured)]
    following = inner.emit(OPS["add"], counter, Literal(1, INT32))[0]
    body = inner.program([following, *(inner.array(type) for type in carry[1:])])
    test = Block(block.generator, [Var(var.type) for var in inner.inputs], 0)
    if test.refs and block.generator.flag():
        test.emit(OPS["load"], test.refs[0], transforms=())
    limit = Literal(block.generator.integer(0, 3), INT32)
    again = test.emit(OPS["lt"], test.inputs[len(captured)], limit)
    constants = len(captured)
    condition = test.program(again)
    block.emit(OPS["repeat"], *captured, *initial, condition=condition, body=body, constants=constants)


def _scope(block: Block, captured: Sequence[Var]) -> None:
    allocations = tuple(block.generator.ref_type() for _ in range(block.generator.integer(0, 2)))
    inner = block.inner(captured, (), allocations)
    body = inner.program([inner.array(type) for type in inner.types(2)])
    block.emit(OPS["scope"], *captured, body=body, allocations=allocations)


def _operand_count(transform: Transform) -> int:
    if not isinstance(transform, Index):
        return 0
    return sum(
        isinstance(entry.start if isinstance(entry, SliceEntry) else entry, Operand) for entry in transform.entries
    )


def _fixed_type(op: Op, position: int, part: ArrayType) -> ArrayType:
    """The type of an access's input at a position after its root: a mask if it is called so, else like the part."""
    names = list(inspect.signature(op.type).parameters)
    name = names[position] if position < len(names) else ""
    return ArrayType(part.shape, dtypes.BOOL) if name == "mask" else part


# What can be drawn for each parameter of an operation, by its name, given the types of the operands.

Draw = Callable[[Generator, Sequence[Any]], Any]


def _axis(generator: Generator, types: Sequence[Any]) -> int:
    return generator.integer(0, max(0, types[0].ndim - 1) if types else 1)


def _axes(generator: Generator, types: Sequence[Any]) -> tuple[int, ...]:
    return tuple(axis for axis in range(types[0].ndim) if generator.flag())


def _shape(generator: Generator, types: Sequence[Any]) -> tuple[int, ...]:
    shape = types[0].shape if types else generator.pick(SHAPES)
    return generator.pick([shape, shape[::-1], (math.prod(shape),), (2, *shape)])


def _padding(generator: Generator, types: Sequence[Any]) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        (generator.integer(-1, 1), generator.integer(-1, 1), generator.integer(0, 1)) for _ in range(types[0].ndim)
    )


def _pair_of_axes(generator: Generator, types: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return ((_axis(generator, types),), (_axis(generator, types),)) if generator.flag() else ((), ())


def _permutation(generator: Generator, types: Sequence[Any]) -> tuple[int, ...]:
    return tuple(generator.draw(st.permutations(range(types[0].ndim))))


PARAMETERS: dict[str, Draw] = {
    "accumulator_ilp": lambda generator, types: generator.pick([None, 2]),
    "axes": _axes,
    "axis": _axis,
    "batch": _pair_of_axes,
    "contracting": _pair_of_axes,
    "padding": _padding,
    "dimension": _axis,
    "dtype": lambda generator, types: generator.pick(DTYPES),
    "half": lambda generator, types: generator.pick(["even", "away"]),
    "last": lambda generator, types: None,
    "num_keys": lambda generator, types: 1,
    "permutation": _permutation,
    "reverse": lambda generator, types: generator.flag(),
    "shape": _shape,
    "stable": lambda generator, types: generator.flag(),
    "values": lambda generator, types: (1,),
    "y": lambda generator, types: generator.integer(0, 3),
}


@cache
def keywords(op: Op) -> tuple[str, ...]:
    """The names of an operation's parameters."""
    found = inspect.signature(op.type).parameters.values()
    return tuple(each.name for each in found if each.kind is each.KEYWORD_ONLY)


@cache
def computing() -> tuple[Op, ...]:
    """The operations that neither access memory nor run sub-programs, and that can be drawn."""
    return tuple(
        op for op in ALL_OPS if not op.index_start and not op.control and op.name not in NOT_DRAWN and signatures(op)
    )


@cache
def signatures(op: Op) -> tuple[tuple[DType, ...], ...]:
    """Operand dtypes that the operation takes, found by trying its type rule on arrays of one shape."""
    if not set(keywords(op)) <= {*PARAMETERS}:
        return ()
    patterns = [(dtype,) * count for dtype in DTYPES for count in range(4)]
    patterns += [(dtypes.BOOL, dtype, dtype) for dtype in DTYPES]
    return tuple(dict.fromkeys(pattern for pattern in patterns if _takes(op, pattern)))


_PROBES: dict[str, tuple[Any, ...]] = {
    "accumulator_ilp": (None,),
    "axes": ((0,), (0, 1)),
    "axis": (0,),
    "batch": (((), ()),),
    "contracting": (((0,), (0,)),),
    "padding": (((0, 0, 0), (0, 0, 0)),),
    "dimension": (0,),
    "dtype": (dtypes.INT32, dtypes.FLOAT32, dtypes.SHORT_NAMES["u8"]),
    "half": ("even",),
    "last": (None,),
    "num_keys": (1,),
    "permutation": ((1, 0),),
    "reverse": (False,),
    "shape": ((2, 4),),
    "stable": (True,),
    "values": ((1,),),
    "y": (2,),
}


def _takes(op: Op, pattern: Sequence[DType]) -> bool:
    names = keywords(op)
    for values in itertools.product(*(_PROBES[name] for name in names)):
        try:
            shapes = [(2, 4)] * (len(pattern) - 1) + [() if "padding" in names else (2, 4)]
            types = [ArrayType(shape, dtype) for shape, dtype in zip(shapes, pattern, strict=False)]
            op.type(*types, **dict(zip(names, values, strict=True)))
        except (PalladioError, TypeError, IndexError):
            continue
        return True
    return False


@st.composite
def programs(draw: Any) -> Program:
    """Random programs."""
    return Generator(draw).program()


def inputs_of(program: Program, seed: int) -> list[Any]:
    """Arrays for a program's inputs: small integers, mostly good indices, and floats with the odd special one."""
    random = np.random.default_rng(seed)
    return [_values(var.type, random) for var in program.inputs]


def _values(type: Type, random: np.random.Generator) -> Any:
    if type.dtype == dtypes.BOOL:
        return random.integers(0, 2, type.shape).astype(bool)
    if dtypes.is_integer(type.dtype):
        return random.integers(0, 4, type.shape).astype(type.dtype)
    values = np.asarray(random.standard_normal(type.shape).astype(np.float32))
    special = np.asarray(random.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32), type.shape))
    return np.where(random.random(type.shape) < 0.1, special, values).astype(type.dtype)
