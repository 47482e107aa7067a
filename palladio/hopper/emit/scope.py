"""Code generation state of a kernel and of each role: the values of variables, and the interface of the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from palladio.base.dataclass import dataclass
from palladio.base.errors import attach
from palladio.hopper.emit.names import Names, identifier
from palladio.hopper.emit.plan import BARRIER_BYTES, WARPGROUP_THREADS, Plan
from palladio.hopper.emit.scalars import Scalar, narrow, register_type
from palladio.hopper.emit.uses import COPY, ROWS, Use, is_clustered, uses
from palladio.hopper.emit.values import (
    EXCHANGE,
    Array,
    Barriers,
    Computed,
    Entry,
    Global,
    NamedBarriers,
    Reference,
    Registers,
    Semaphores,
    Shared,
    Sites,
    Splat,
)
from palladio.hopper.emit.views import Along, Limit, Part, Scalars, Start, first_of, limits, whole
from palladio.hopper.emit.writer import Writer
from palladio.hopper.layouts.infer import Layouts
from palladio.hopper.layouts.integers import Index, added, times
from palladio.hopper.layouts.registers import Layout
from palladio.hopper.lowered import Array as ArrayRecord
from palladio.hopper.lowered import ArrayParameter, MapParameter, MapSpec, Parameter, ScalarParameter
from palladio.hopper.wgmma import Wgmma
from palladio.ir.core import Atom, Literal, Program, Var, subprograms
from palladio.lower.ranges import Range, in_range, range_of
from palladio.lower.refused import Refused
from palladio.lower.roles import Role
from palladio.ops.threads.launch import MeshShape
from palladio.types import dtypes
from palladio.types.attributes import Arrivals, Named
from palladio.types.dtypes import DType
from palladio.types.transforms import Operand, Transform
from palladio.types.types import ANY, BARRIER, GMEM, SCALAR, SEMAPHORE, SMEM, VMEM, RefType
from palladio.types.views import Guard, View, along

BUFFERS = (SMEM, VMEM, SCALAR, ANY)
"""The memory spaces whose allocations are in shared memory."""

Rule = Callable[..., Sequence[Entry] | None]
"""A rule writes one equation: `(scope, eqn) -> values of its outputs`."""


@dataclass
class Kernel:
    """The state that all roles of a kernel share.

    Fields:
        mesh: the axes of its threads.
        plan: its shared memory.
        uses: the uses of each reference.
        blocks: of the launch; None if their number is known only at the call.
        running: the hardware threads of a block that run a role.
        arrays: its operands, outputs and workspaces.
        maps: its tensor maps, each with the name of its parameter.
        pointers: the arrays whose addresses are parameters, by number, each with the name of its parameter.
        products: the wgmma instructions that it uses.
        names: of its parameters, its arrays, and the variables of its roles.
        named: the names of its operands and outputs, by number.
        numbers: its scalar parameters, by name.
        workspaces: the launch's private memory: the number among the arrays of each allocation, and its name.
        met: the barriers of a cluster at the entries of whose scopes its blocks meet.
        publishes: True if barriers of a cluster order accesses to memory that its blocks share.
        approximate: True if functions may be approximated, as `CompilerParams.approx_math` allows.
    """

    mesh: MeshShape
    plan: Plan
    uses: Mapping[Var, Use]
    blocks: int | None
    running: int = WARPGROUP_THREADS
    arrays: list[ArrayRecord] = field(default_factory=list)
    maps: dict[MapSpec, str] = field(default_factory=dict)
    pointers: dict[int, str] = field(default_factory=dict)
    products: set[Wgmma] = field(default_factory=set)
    names: Names = field(default_factory=Names)
    named: dict[int, str] = field(default_factory=dict)
    numbers: dict[str, ScalarParameter] = field(default_factory=dict)
    workspaces: dict[Var, tuple[int, str]] = field(default_factory=dict)
    met: frozenset[Var] = frozenset()
    publishes: bool = False
    approximate: bool = False

    def use(self, var: Var) -> Use:
        """The uses of a reference, by its allocation."""
        return self.uses.get(var) or Use()

    def map(self, spec: MapSpec, hint: str) -> str:
        """The name of the parameter of a tensor map."""
        if spec not in self.maps:
            box = "x".join(map(str, spec.box))
            self.maps[spec] = self.names.parameter(f"{hint}_boxes", f"{hint}_boxes_{box}")
        return self.maps[spec]

    def pointer(self, number: int, hint: str) -> str:
        """The name of the parameter that is the address of an array."""
        if number not in self.pointers:
            self.pointers[number] = hint
        return self.pointers[number]

    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the kernel, in order."""
        maps = [MapParameter(name, spec) for spec, name in sorted(self.maps.items(), key=lambda each: each[0].array)]
        pointers = (ArrayParameter(name, number) for number, name in sorted(self.pointers.items()))
        return (*maps, *pointers, *self.numbers.values())

    def size(self, operand: int) -> str:
        """The name of the parameter for the size of an axis, which is an operand of the launch."""
        known = next((each.name for each in self.numbers.values() if each.operand == operand), None)
        name = known or self.names.parameter(f"size{operand}")
        self.numbers[name] = ScalarParameter(name, operand, dtypes.INT32)
        return name

    def number(self, var: Var, number: int) -> Scalar:
        """A number among the operands, which is passed by value."""
        dtype, name = var.type.dtype, self.named[number]
        held = dtypes.FLOAT32 if narrow(dtype) else dtype
        self.numbers[name] = ScalarParameter(name, self.arrays[number].position, held)
        return Scalar(name, dtype)

    def name_arrays(self, variables: Iterable[Var]) -> None:
        """Name the operands and outputs after their variables."""
        for number, var in enumerate(variables):
            self.named[number] = self.names.parameter(identifier(var.hint) or f"array{number}")

    def array(self, var: Var, number: int) -> Global:
        """An operand or output, which is in global memory."""
        return Global(number, self.named[number], var.type, not self.use(var).written, var)

    def workspace(self, var: Var, shape: tuple[int, ...], dtype: DType, zeroed: bool) -> tuple[int, str]:
        """Private memory of the launch for an allocation: its number among the arrays, and its name."""
        if var not in self.workspaces:
            number, position = len(self.arrays), len(self.workspaces)
            hint = identifier(var.hint) or ("semaphores" if zeroed else f"array{number}")
            name = self.names.parameter(hint)
            self.workspaces[var] = number, name
            self.arrays.append(ArrayRecord("workspace", position, shape, dtype, zeroed))
        return self.workspaces[var]

    def axis(self, kind: str) -> dict[str, int]:
        """The axes of one kind of the mesh, with their sizes."""
        return {axis.name or str(n): axis.size or 1 for n, axis in enumerate(self.mesh.axes) if axis.kind == kind}


class Scope:
    """The state of one role.

    Fields:
        threads: the warpgroups that run it.
        one_warp: True if only the first warp of each warpgroup runs it.
        env: the values of variables.
        flight: accumulators of the products in flight, the oldest first; `before` is True if there may be older ones.
        in_range: results of arithmetic that cannot overflow their dtype.
        ranges: the ranges of integer inputs of equations.
        replaced: accumulators without a value yet: their first product does not add to them.
        packed: arrays in registers that a loop carries packed, each with the name of the packed registers.
        warps: True while each warp runs the program as a separate thread.
        waits: the barriers with a wait, each with the value of `warps` at the wait.
        loops: the loops around the equation that is being written.
    """

    def __init__(
        self,
        kernel: Kernel,
        role: Role,
        layouts: Layouts,
        rules: Mapping[str, Rule],
        exchange: Callable[..., Registers],
        one_warp: bool,
        ranges: Mapping[Var, Range],
    ) -> None:
        self.kernel = kernel
        self.threads = role.threads
        self.layouts = layouts
        self.rules = rules
        self.exchange = exchange
        self.one_warp = one_warp
        self.w = Writer(kernel.names)
        self.env: dict[Var, Entry] = {}
        self.sites = Sites()
        used = uses([role.program])
        waited = {var for var, use in used.items() if COPY in use.arrivals}
        self.accessed_roots = {var for var, use in used.items() if use.accesses or use.products} | waited | {EXCHANGE}
        self.used = set(_used(role.program))
        self.stored_roots = {var for var, use in used.items() if use.accesses and use.written} | {EXCHANGE}
        self.flight: list[str] = []
        self.before = False
        self.accumulators: dict[str, str] = {}
        self.replaced: set[str] = set()
        self.packed: dict[str, str] = {}
        self.in_range, self.ranges = in_range(role.program, dict(ranges))
        self.registers: tuple[int, str] | None = None
        self.prologue: list[tuple[str, str]] = []
        self.location: Any = None
        self.refused: Mapping[str, str] = {}
        self.room: tuple[int, int] | None = None
        self.warps = False
        self.loops = 0

    # Equations.

    def run(self, program: Program) -> None:
        """Write the equations of a program."""
        for eqn in program.eqns:
            with attach(eqn.location, f"compiling {eqn.op.name} for Hopper"):
                self.location = eqn.location
                self.w.at(eqn.location)
                rule = self.rules.get(eqn.op.name)
                if rule is None:
                    reason = self.refused.get(eqn.op.name, "there is no rule for it")
                    raise Refused(f"{eqn.op.name} is not compiled for Hopper: {reason}")
                found = rule(self, eqn) or ()
                for var, entry in zip(eqn.outputs, found, strict=True):
                    self.env[var] = entry

    def entry(self, atom: Atom) -> Entry:
        """The value of an atom."""
        return Scalar.of(atom) if isinstance(atom, Literal) else self.env[atom]

    def scalar(self, atom: Atom) -> Scalar:
        """The value of a scalar atom."""
        found = self.entry(atom)
        if isinstance(found, Scalar):
            return found
        raise Refused("an array of one element where a number is needed is not compiled for Hopper")

    def text(self, atom: Atom) -> str:
        """A number as a C expression."""
        return self.scalar(atom).text

    def condition(self, atom: Atom) -> str | None:
        """A truth value as a C expression; None if it is known to be true."""
        found = self.scalar(atom)
        return None if found.constant else found.text

    def bind(self, variables: Sequence[Var], atoms: Sequence[Atom]) -> None:
        """Bind the inputs of a program to atoms."""
        for var, atom in zip(variables, atoms, strict=True):
            self.env[var] = self.entry(atom)

    def name(self, var: Var, otherwise: str = "v") -> str:
        """A name for a variable."""
        return self.w.fresh(var.hint, otherwise)

    def number(self, var: Var, text: str, factor: int = 1, truth: str | None = None) -> Scalar:
        """Compute a number into a constant."""
        dtype = var.type.dtype
        name = self.name(var, "is" if dtype.kind == "b" else "i" if dtype.kind in "iu" else "x")
        self.w.compute(f"const {register_type(dtype)} {name} = {text};")
        return Scalar(name, dtype, factor, truth or (name if dtype.kind == "b" else None))

    # The position of a thread.

    @property
    def thread(self) -> str:
        """The number of a thread in its warpgroup, as a C expression."""
        return "thread"

    @property
    def group(self) -> Index:
        """The number of the warpgroup."""
        return self.threads[0] if len(self.threads) == 1 else "warpgroup"

    @property
    def group_in_role(self) -> Index:
        """The number of the warpgroup among those of the role."""
        if len(self.threads) == 1:
            return 0
        first = self.threads[0]
        if self.threads == tuple(range(first, first + len(self.threads))):
            return "warpgroup" if first == 0 else f"(warpgroup - {first})"
        ordered = " : ".join(f"warpgroup == {group} ? {n}" for n, group in enumerate(self.threads[:-1]))
        return f"({ordered} : {len(self.threads) - 1})"

    @property
    def runs(self) -> tuple[int, Index]:
        """The number of threads that run the program concurrently, and this one's number."""
        if not self.warps:
            return len(self.threads), self.group_in_role
        return 4 * len(self.threads), added(times(self.group_in_role, 4), "warp")

    def sync(self) -> None:
        """Synchronise the warpgroup, or the only warp; this orders all its earlier accesses."""
        if self.one_warp:
            self.w.line("pal::sync_warp();")
        else:
            self.w.line(f"pal::sync_named({self.barrier}, {WARPGROUP_THREADS});")
        self.sites = Sites()

    def meet(self) -> None:
        """Synchronise all threads of the block that run a role; this orders all their earlier accesses."""
        if self.kernel.running == WARPGROUP_THREADS and not self.one_warp:
            self.sync()
            return
        self.w.line(f"pal::sync_named(0, {self.kernel.running});")
        self.sites = Sites()

    def meet_cluster(self) -> None:
        """Synchronise all threads of the cluster; this orders all their earlier accesses."""
        self.w.line("pal::sync_cluster();")
        self.sites = Sites()

    @contextmanager
    def loop(self) -> Iterator[None]:
        """The body of a loop, which runs any number of times, is written inside."""
        self.loops += 1
        yield
        self.loops -= 1

    def agreed(self, condition: str) -> str:
        """True if a condition holds in all threads of the warpgroup, which synchronise, as a C expression."""
        self.w.flush()
        self.sites = Sites()
        if self.one_warp:
            return f"pal::all_lanes({condition})"
        return f"pal::all_named({self.barrier}, {WARPGROUP_THREADS}, {condition})"

    @property
    def barrier(self) -> str:
        """The number of the warpgroup's hardware barrier, as a C expression."""
        return str(1 + self.threads[0]) if len(self.threads) == 1 else "1 + warpgroup"

    def before_read(self, root: Any) -> None:
        """Order this read after the writes of other threads of the warpgroup."""
        if root in self.sites.written:
            self.sync()

    def before_write(self, root: Any) -> None:
        """Order this write after the reads and writes of other threads of the warpgroup."""
        if root in self.sites.written or root in self.sites.read:
            self.sync()

    # References.

    def place(self, var: Var) -> Reference:
        """The allocation of a reference."""
        type = var.type
        if type.space in BUFFERS:
            offset, layout = self.kernel.plan.buffer(var, self.kernel.use(var))
            return Shared(f"smem + {offset}" if offset else "smem", layout, type, var, var.hint or "buffer")
        if type.space is BARRIER:
            return self.place_barriers(var)
        if type.space is SEMAPHORE:
            return self.place_semaphores(var)
        if type.space is GMEM:
            number, name = self.kernel.workspace(var, type.shape, type.dtype, False)
            return Global(number, name, type, not self.kernel.use(var).written, var)
        raise Refused(f"{type.space} allocated in a kernel is not compiled for Hopper", got=str(type))

    def place_barriers(self, var: Var, owners: tuple[int, ...] = ()) -> Reference:
        """The allocation of barriers, which the block shares or each of several warpgroups has for itself."""
        type = var.type
        arrivals = type.attribute(Arrivals) or Arrivals()
        if type.attribute(Named) is not None:
            first = self.kernel.plan.named_barriers(var, self.location)
            return NamedBarriers(first, arrivals.count * WARPGROUP_THREADS, type)
        use = self.kernel.use(var)
        offset = self.kernel.plan.barrier(var, use, owners)
        base = f"smem + {offset}"
        if len(owners) > 1:
            base = f"{base} + {self.group_in_role} * {BARRIER_BYTES * max(1, type.size)}"
        name = self.w.fresh(f"{var.hint or 'barrier'}_phases")
        made = Barriers(base, type, use.unit, name, var)
        self.prologue.append((name, f"u32 {name}[{made.words}] = {{}};" if made.words > 1 else f"u32 {name} = 0;"))
        if len(use.waits) > 1:
            made = replace(made, ahead=self.w.fresh(f"{var.hint or 'barrier'}_ahead"))
            self.prologue.append((made.ahead or "", f"u32 {made.ahead}[{max(1, type.size)}] = {{}};"))
        clustered = is_clustered(type, use)
        of_rows = ROWS in use.arrivals
        return replace(made, cluster_axes=arrivals.groups, clustered=clustered, of_rows=of_rows)

    def place_semaphores(self, var: Var, copies: int = 1, copy: Index = 0) -> Reference:
        """Counters, zero at the start of the kernel: one of several copies, or the one that all blocks share."""
        size = max(1, var.type.size)
        number, name = self.kernel.workspace(var, (copies * size,), dtypes.INT32, True)
        return Semaphores(str(added(self.kernel.pointer(number, name), times(copy, size))), var.type)

    def place_of_block(self, var: Var, groups: int = 1, group: Index = 0) -> Reference:
        """The allocation of a reference that each block has for itself, or each of several groups in it."""
        type, blocks = var.type, self.kernel.blocks
        if type.space not in (SEMAPHORE, GMEM):
            return self.place(var)
        if blocks is None:
            raise Refused(
                "global memory or semaphores of each block are not compiled for Hopper in a grid of unknown size",
                expected="sizes of the grid that are known when the kernel is made",
                got=str(type),
                hint="make the kernel with sizes as ints, or allocate for all blocks: scratch_types of plgpu.kernel",
            )
        copies, copy = blocks * groups, added(times("pal::block_index()" if blocks > 1 else 0, groups), group)
        if copies == 1:
            return self.place(var)
        if type.space is SEMAPHORE:
            return self.place_semaphores(var, copies, copy)
        number, name = self.kernel.workspace(var, (copies, *type.shape), type.dtype, False)
        starts = (Start(copy, 1), *(Start.of(0) for _ in type.shape))
        window = Part((copies, *type.shape), starts, tuple(Along(n, 1, size) for n, size in enumerate(type.shape, 1)))
        every = RefType(window.shape, type.dtype, type.space, type.attributes)
        return Global(number, name, every, not self.kernel.use(var).written, var, window)

    def place_of_each(self, var: Var) -> Reference:
        """The allocation of a reference that is private to each thread of the role."""
        type, count = var.type, len(self.threads)
        if type.space in BUFFERS:
            offset, layout = self.kernel.plan.buffer(var, self.kernel.use(var), self.threads)
            size = -(-layout.bytes // layout.alignment) * layout.alignment
            base = f"smem + {offset}" + (f" + {self.group_in_role} * {size}" if count > 1 else "")
            return Shared(base, layout, type, var, var.hint or "buffer")
        if type.space is BARRIER:
            return self.place_barriers(var, self.threads)
        return self.place_of_block(var, self.kernel.plan.warpgroups, self.group)

    def view(self, where: Shared | Global | RefType, stack: Sequence[Transform], indices: Sequence[Atom]) -> Part:
        """The part of a buffer, an array or barriers that a stack of transforms selects."""

        type = where if isinstance(where, RefType) else where.type
        window = where.window if isinstance(where, Global) else None
        return self.through(window or whole(type.shape), type.dtype, stack, indices)

    def through(self, part: Part, dtype: DType, stack: Sequence[Transform], indices: Sequence[Atom]) -> Part:
        """The part that a stack of transforms selects from a part with elements of a dtype."""

        return part.through(dtype, stack, [atom.type.shape for atom in indices], self.index_of(indices))

    def limits(self, view: View, indices: Sequence[Atom]) -> tuple[Limit, ...]:
        """The guards of a view, without those that are known to hold in this role."""
        scalar = self.index_of(indices)
        open_guards = [guard for guard in view.guards if not self.holds(guard, view.sizes, indices)]
        return limits(open_guards, lambda row: first_of(row, scalar))

    def sizes_left(self, where: Global, found: Sequence[View], indices: Sequence[Atom]) -> tuple[Limit, ...]:
        """The limits of a block with bounded slices, which may be shorter than its shape, for views of it."""
        scalar, rank = self.index_of(indices), len(where.window.axes) if where.window else 0
        rows = found[0].coordinates if found else [along(axis, rank) for axis in range(rank)]
        return tuple(Limit(first_of(rows[axis], scalar), rows[axis].strides, extent) for axis, extent in where.sizes)

    def holds(self, guard: Guard, sizes: Sequence[int], indices: Sequence[Atom]) -> bool:
        """True if the ranges of the indices prove that all elements of a selection are inside."""
        low = high = guard.coordinate.start
        for position, factor in guard.coordinate.operands:
            found = range_of(indices[position], self.ranges)
            if found is None:
                return False
            low += min(found.low * factor, found.high * factor)
            high += max(found.low * factor, found.high * factor)
        for size, stride in zip(sizes, guard.coordinate.strides, strict=True):
            low, high = low + min(0, (size - 1) * stride), high + max(0, (size - 1) * stride)
        return low >= 0 and high < guard.extent

    def index_of(self, indices: Sequence[Atom]) -> Scalars:
        """The index operands of an equation; None for an array of them."""

        def scalar(operand: Operand) -> Scalar | None:
            found = self.entry(indices[operand.position])
            return found if isinstance(found, Scalar) else None

        return scalar

    def rank(self, peer: Sequence[tuple[str, Start]]) -> Index:
        """The rank of a peer block in the cluster, from its index along some axes and this block's along the others."""
        sizes, given = self.kernel.axis("cluster"), dict(peer)
        terms, weight = [], 1
        for name in reversed(list(sizes)):
            own = f"(pal::cluster_rank() / {weight} % {sizes[name]})"
            terms.append(times(given[name].at if name in given else own, weight))
            weight *= sizes[name]
        return added(*terms)

    # Arrays.

    def layout(self, var: Var) -> Layout:
        """The inferred layout of an array."""
        return self.layouts.of(var)

    def declare(self, hint: str, layout: Layout, dtype: DType, exact: bool = True) -> Registers:
        """Registers for an array."""
        name = self.w.fresh(hint, "v")
        self.w.line(f"{register_type(dtype)} {name}[{max(1, layout.count)}];")
        return Registers(name, layout, dtype, exact)

    def fill(self, target: Registers, text: Callable[[str], str]) -> Registers:
        """Compute every register: `text` gives its value, from its number."""
        self.w.line(f"PAL_UNROLL for (int r = 0; r < {target.layout.count}; ++r) {target.name}[r] = {text('r')};")
        return target

    def array(self, atom: Atom, layout: Layout) -> Array:
        """An array in a layout, converted if it has another one."""
        found = self.entry(atom)
        if isinstance(found, Scalar):
            return Splat(found.text, layout.shape, found.dtype, found.constant)
        if isinstance(found, Registers) and not found.layout.same(layout):
            return self.converted(found, layout)
        return found

    def converted(self, x: Registers, layout: Layout) -> Registers:
        """An array converted to another layout."""
        return self.exchange(self, x, layout)

    def element(self, x: Array, register: str, layout: Layout) -> str:
        """An element of an array in a layout."""
        if isinstance(x, Splat):
            return x.text
        if isinstance(x, Computed):
            return x.at(layout, register, self.thread)
        return x.at(register)

    def stored(self, x: Array, register: str, layout: Layout) -> str:
        """An element for a store that rounds it: registers are read without rounding to the dtype."""
        return f"{x.name}[{register}]" if isinstance(x, Registers) else self.element(x, register, layout)

    def materialised(self, atom: Atom, layout: Layout, hint: str = "v") -> Registers:
        """An array in registers."""
        found = self.array(atom, layout)
        if isinstance(found, Registers):
            return found
        target = self.declare(hint, layout, found.dtype)
        return self.fill(target, lambda r: self.element(found, r, layout))

    # The tensor cores.

    def landed(self, pending: int) -> list[str]:
        """The accumulators that are complete when at most `pending` products are in flight; updates `flight`."""
        if pending and len(self.flight) < pending and self.before:
            return []
        busy = self.flight[len(self.flight) - pending :] if pending else []
        done = [name for name in self.accumulators if name not in busy]
        self.flight = busy
        self.before = self.before and bool(pending) and len(busy) < pending
        return done

    def wait_products(self, pending: int) -> None:
        """Wait until at most `pending` products are in flight, and order reads of their accumulators after the wait."""
        self.w.line(f"pal::wgmma_wait<{pending}>();")
        for name in self.landed(pending):
            self.w.line(f"{self.accumulators[name]}")


def _used(program: Program) -> Iterator[Atom]:
    """The inputs of equations, and the outputs of programs."""
    yield from program.outputs
    for eqn in program.eqns:
        yield from eqn.inputs
        for inner in subprograms(eqn):
            yield from _used(inner)
