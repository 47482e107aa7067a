"""`python -m tools.mutants`: break each library kernel in every way of the mutation classes; what says the checker?

A mutant is a kernel's launch with one equation changed: a wait, fence, arrival or copy left out, a wait that lets more
be in flight, an index of a barrier or stage off by one, a barrier that counts one arrival more or fewer. Each runs
under up to `SCHEDULES` schedules until something is found. A mutant that nothing is found in is harmless if its results
are right in all of them; otherwise it is a miss. With --write the table in docs/checking.md is renewed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from palladio.base.errors import InternalError, PalladioError
from palladio.driver.executors import Executor, simulator, use
from palladio.driver.simulation import Session, SimulatorOptions, session
from palladio.ir.program import Eqn, Program, Var
from palladio.ir.rewrite import map_subprograms
from palladio.library import hopper
from palladio.machine.findings import CheckError, Finding
from palladio.machine.policies import schedules
from palladio.ops.launch import launch
from palladio.types.attributes import Arrivals
from palladio.types.transforms import Index, Operand
from palladio.types.types import BARRIER, RefType

PAGE = Path(__file__).resolve().parents[1] / "docs" / "checking.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
SCHEDULES = 64
TOLERANCE = 5e-3

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Mutation:
    """A class of mutation.

    Fields:
        name: what is done to the kernel.
        change: the equations that one equation may become; none if the class does not touch it.
    """

    name: str
    change: Callable[[Eqn], Iterator[Sequence[Eqn]]]


def _left_out(*names: str) -> Callable[[Eqn], Iterator[Sequence[Eqn]]]:
    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name in names:
            yield ()

    return change


def _twice(*names: str) -> Callable[[Eqn], Iterator[Sequence[Eqn]]]:
    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name in names:
            yield eqn, eqn

    return change


def _one_more_in_flight(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
    """A wait that leaves one group more in flight than it should."""
    if eqn.op.name in ("wgmma_wait", "wait_smem_to_gmem"):
        yield (replace(eqn, params={**eqn.params, "n": eqn.params["n"] + 1}),)
    if eqn.op.name == "accumulator_load" and eqn.params["wait_n"] == 0:
        yield (replace(eqn, params={**eqn.params, "wait_n": 1}),)


def _sources_only(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
    if eqn.op.name == "wait_smem_to_gmem" and not eqn.params["read_only"]:
        yield (replace(eqn, params={**eqn.params, "read_only": True}),)


def _at_another(*names: str, position: int) -> Callable[[Eqn], Iterator[Sequence[Eqn]]]:
    """The first index of an input moved on by one, around the end: another barrier, another stage."""

    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name not in names:
            return
        root = eqn.inputs[position].type
        stacks = eqn.op.stacks(eqn.params["transforms"])
        first = stacks[position][0] if stacks[position] else None
        if not isinstance(root, RefType) or not isinstance(first, Index) or not root.shape or root.shape[0] < 2:
            return
        entry = first.entries[0]
        if isinstance(entry, int):
            moved: Any = (entry + 1) % root.shape[0]
        elif isinstance(entry, Operand):
            moved = 0  # a stage that does not turn: what one stage too few does to those that share it
        else:
            return
        stack = (Index((moved, *first.entries[1:])), *stacks[position][1:])
        changed = tuple(stack if n == position else each for n, each in enumerate(stacks))
        transforms = changed if eqn.op.reaches > 1 else changed[0]
        yield (replace(eqn, params={**eqn.params, "transforms": transforms}),)

    return change


def _later(*names: str) -> Callable[[Eqn], Iterator[Sequence[Eqn]]]:
    """Marked here, carried out by `_mutants`: the equation and the one behind it change places."""

    def change(eqn: Eqn) -> Iterator[Sequence[Eqn]]:
        if eqn.op.name in names:
            yield eqn, _SWAP

    return change


_SWAP: Any = object()

CLASSES: tuple[Mutation, ...] = (
    Mutation("a barrier wait left out", _left_out("barrier_wait")),
    Mutation("a wgmma wait left out", _left_out("wgmma_wait")),
    Mutation("a wait for stores left out", _left_out("wait_smem_to_gmem")),
    Mutation("a fence left out", _left_out("commit_smem")),
    Mutation("an arrival left out", _left_out("barrier_arrive")),
    Mutation("a copy left out", _left_out("copy_gmem_to_smem")),
    Mutation("a group never committed", _left_out("commit_smem_to_gmem_group")),
    Mutation("an arrival too many", _twice("barrier_arrive")),
    Mutation("a wait too many: the wrong phase", _twice("barrier_wait")),
    Mutation("a copy too many: the wrong bytes", _twice("copy_gmem_to_smem")),
    Mutation("one group more in flight", _one_more_in_flight),
    Mutation("only the sources of stores awaited", _sources_only),
    Mutation("a wait for another barrier", _at_another("barrier_wait", position=0)),
    Mutation("an arrival at another barrier", _at_another("barrier_arrive", position=0)),
    Mutation("a copy into another stage", _at_another("copy_gmem_to_smem", position=1)),
    Mutation("a copy that arrives elsewhere", _at_another("copy_gmem_to_smem", position=2)),
    Mutation("a product of another stage", _at_another("wgmma", position=2)),
    Mutation("a release before its wait: no delay", _later("wgmma_wait", "barrier_wait")),
)


def mutants(program: Program) -> Iterator[tuple[str, str, Program]]:
    """The class, the changed line and the program of every mutant."""
    for mutation in CLASSES:
        for found, eqn in _mutated(program, mutation.change):
            yield mutation.name, _place(eqn), found
    for found, place, more in _recounted(program):
        yield f"a barrier that counts one {'more' if more else 'fewer'}", place, found


def _place(eqn: Eqn) -> str:
    location = eqn.location
    if location is None:
        return eqn.op.name
    inner = location
    return f"{Path(inner.file).name}:{inner.line} {eqn.op.name}"


def _mutated(program: Program, change: Any) -> Iterator[tuple[Program, Eqn]]:
    """Every program in which one equation has changed."""
    for number, eqn in enumerate(program.eqns):
        for new in change(eqn):
            eqns = [*program.eqns[:number], *new, *program.eqns[number + 1 :]]
            if _SWAP in new:
                swapped = _swapped(program.eqns, number)
                if swapped is None:
                    continue
                eqns = swapped
            yield _with(program, eqns), eqn
        for key, value in eqn.params.items():
            parts = value if isinstance(value, tuple) else (value,)
            for place, part in enumerate(parts):
                if isinstance(part, Program):
                    for inner, site in _mutated(part, change):
                        changed = (*parts[:place], inner, *parts[place + 1 :]) if isinstance(value, tuple) else inner
                        whole = replace(eqn, params={**eqn.params, key: changed})
                        yield _with(program, [*program.eqns[:number], whole, *program.eqns[number + 1 :]]), site


def _swapped(eqns: Sequence[Eqn], number: int) -> list[Eqn] | None:
    """The equations with one of them behind the next that synchronises, if nothing is in the way."""
    for other in range(number + 1, len(eqns)):
        if any(kind.value == "sync" for kind, _ in eqns[other].effects) or eqns[other].op.control:
            return [*eqns[:number], *eqns[number + 1 : other + 1], eqns[number], *eqns[other + 1 :]]
    return None


def _with(program: Program, eqns: Sequence[Eqn]) -> Program:
    return Program(program.inputs, tuple(eqns), program.outputs, program.name, program.location)


def _recounted(program: Program) -> Iterator[tuple[Program, str, bool]]:
    """The launch with one of its barriers counting one arrival more or fewer."""
    for number, eqn in enumerate(program.eqns):
        if eqn.op is not launch:
            continue
        made = eqn.params["launch"]
        for place, type in enumerate(made.scratch):
            arrivals = type.attribute(Arrivals)
            if type.space is not BARRIER or arrivals is None:
                continue
            name = eqn.params["programs"][0].inputs[place - len(made.scratch)].hint
            for step in (1, -1):
                if arrivals.count + step < 1:
                    continue
                counted = replace(arrivals, count=arrivals.count + step)
                others = tuple(each for each in type.attributes if not isinstance(each, Arrivals))
                new = replace(type, attributes=(counted, *others))
                yield (
                    _with(
                        program,
                        [
                            *program.eqns[:number],
                            _retyped(eqn, place, new),
                            *program.eqns[number + 1 :],
                        ],
                    ),
                    f"barrier {name}",
                    step > 0,
                )


def _retyped(eqn: Eqn, place: int, new: RefType) -> Eqn:
    made = eqn.params["launch"]
    scratch = tuple(new if n == place else type for n, type in enumerate(made.scratch))
    programs = []
    for program in eqn.params["programs"]:
        position = len(program.inputs) - len(scratch) + place
        programs.append(_substituted(program, {program.inputs[position]: Var(new, program.inputs[position].hint)}))
    return replace(eqn, params={**eqn.params, "launch": replace(made, scratch=scratch), "programs": tuple(programs)})


def _substituted(program: Program, known: dict[Any, Var]) -> Program:
    """The program with some of its references of another type, in the programs inside it too."""
    eqns = []
    for eqn in program.eqns:
        inputs = tuple(known.get(atom, atom) for atom in eqn.inputs)

        def inner(part: Program, eqn: Eqn = eqn, inputs: Any = inputs) -> Program:
            shift = len(eqn.inputs) - len(part.inputs)
            found = {
                var: Var(new.type, var.hint)
                for var in part.inputs
                for old, new in known.items()
                if var.type == old.type and _stands_for(part, var, eqn, old, shift)
            }
            return _substituted(part, found)

        effects = tuple((kind, known.get(var, var) if var is not None else None) for kind, var in eqn.effects)
        eqns.append(replace(eqn, inputs=inputs, effects=effects, params=map_subprograms(eqn.params, inner)))
    changed = tuple(known.get(var, var) for var in program.inputs)
    return Program(changed, tuple(eqns), program.outputs, program.name, program.location)


def _stands_for(part: Program, var: Var, eqn: Eqn, old: Any, shift: int) -> bool:
    """Whether an input of a sub-program is where its equation passes this reference."""
    return var.hint == old.hint


@dataclass(frozen=True)
class Kernel:
    """A library kernel on small inputs.

    Fields:
        run: makes the call.
        expected: its result in float64.
    """

    name: str
    run: Callable[[], Any]
    expected: Array


def kernels() -> list[Kernel]:
    """Every kernel of the library that is written in the concurrent dialect."""
    rng = np.random.default_rng(0)

    def halves(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float16)

    def wide(array: Array) -> Array:
        return array.astype(np.float64)

    a, b = halves(32, 64), halves(64, 32)
    small = hopper.MatmulConfig(tile_m=16, tile_n=16, tile_k=16, stages=2, epilogue_n=8, blocks=2)
    found = [
        Kernel("matmul", lambda: hopper.matmul(a, b, config=small), wide(a) @ wide(b)),
        Kernel(
            "matmul, cluster of 2",
            lambda: hopper.matmul(a, b, config=replace(small, cluster="m", blocks=2)),
            wide(a) @ wide(b),
        ),
    ]
    sizes = np.array([13, 0, 19], np.int32)
    weights = halves(3, 64, 32)
    ends = np.cumsum(sizes)
    parts = [wide(a)[end - size : end] @ wide(w) for end, size, w in zip(ends, sizes, weights, strict=True)]
    found.append(Kernel("gmm", lambda: hopper.gmm(a, weights, sizes, config=small), np.concatenate(parts)))
    lhs, rhs = halves(32, 32), halves(32, 16)
    grads = [
        wide(lhs)[:, end - size : end] @ wide(rhs)[end - size : end] for end, size in zip(ends, sizes, strict=True)
    ]
    found.append(Kernel("tgmm", lambda: hopper.tgmm(lhs, rhs, sizes, config=small), np.stack(grads)))
    q, k, v = halves(1, 32, 16), halves(1, 40, 16), halves(1, 40, 16)
    attention = hopper.AttentionConfig(block_q=8, block_kv=8, stages=2)
    for causal in (False, True):
        found.append(
            Kernel(
                f"attention{', causal' if causal else ''}",
                lambda causal=causal: hopper.attention(q, k, v, causal=causal, config=attention),  # type: ignore[misc]
                _attended(*map(wide, (q, k, v)), causal),
            )
        )
    return found


def _attended(q: Array, k: Array, v: Array, causal: bool) -> Array:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


@dataclass
class Verdict:
    """What became of a mutant: the finding, or how its results were."""

    kernel: str
    mutation: str
    place: str
    finding: Finding | None = None
    wrong: bool = False
    tried: int = 0


def recorded(kernel: Kernel) -> Program:
    """The program of a kernel's launch."""
    seen: list[Program] = []

    def load(program: Program) -> Any:
        seen.append(program)
        return simulator(SimulatorOptions()).load(program)

    with use(Executor("simulator", "keeps the programs that it runs", load)):
        kernel.run()
    return next(program for program in seen if any(eqn.op is launch for eqn in program.eqns))


def judge(kernel: Kernel, program: Program | None, mutation: str, place: str, count: int, seed: int = 0) -> Verdict:
    """Run a mutant, or the kernel itself, until something is found."""

    def load(original: Program) -> Any:
        is_launch = any(eqn.op is launch for eqn in original.eqns)
        return simulator(SimulatorOptions()).load(program if program is not None and is_launch else original)

    executor = Executor("simulator", "runs a mutant", load)
    verdict = Verdict(kernel.name, mutation, place)
    for policy in schedules(count, seed):
        verdict.tried += 1
        with use(executor), session(Session(lambda policy=policy: policy)) as run:  # type: ignore[misc]
            try:
                result = np.asarray(kernel.run(), np.float64)
                verdict.wrong |= not np.linalg.norm(result - kernel.expected) <= TOLERANCE * np.linalg.norm(
                    kernel.expected
                )
            except CheckError as error:
                verdict.finding = error.finding
            except (PalladioError, InternalError) as error:
                verdict.finding = Finding("deadlock", str(error), ())
        if run.findings:
            verdict.finding = run.findings[0]
        if verdict.finding is not None:
            return verdict
    return verdict


@dataclass
class Matrix:
    """All verdicts."""

    verdicts: list[Verdict] = field(default_factory=list)
    alarms: list[Verdict] = field(default_factory=list)
    clean: int = 0

    @property
    def missed(self) -> list[Verdict]:
        """Mutants with wrong results in which nothing was found."""
        return [each for each in self.verdicts if each.finding is None and each.wrong]

    @property
    def harmless(self) -> list[Verdict]:
        """Mutants in which nothing was found, with right results in every schedule."""
        return [each for each in self.verdicts if each.finding is None and not each.wrong]


def run_matrix(chosen: Sequence[Kernel], console: Console, count: int = SCHEDULES) -> Matrix:
    """Judge every mutant of these kernels, and the kernels themselves."""
    matrix = Matrix()
    with Progress(console=console, transient=True) as progress:
        for kernel in chosen:
            plain = judge(kernel, None, "none", "", count)
            matrix.clean += plain.tried
            if plain.finding is not None or plain.wrong:
                matrix.alarms.append(plain)
            program = recorded(kernel)
            todo = list(mutants(program))
            task = progress.add_task(kernel.name, total=len(todo))
            for mutation, place, mutant in todo:
                matrix.verdicts.append(judge(kernel, mutant, mutation, place, count))
                progress.advance(task)
    return matrix


def table(matrix: Matrix) -> str:
    """The confusion matrix and the survivors, as Markdown."""
    by_class: dict[str, list[Verdict]] = defaultdict(list)
    for each in matrix.verdicts:
        by_class[each.mutation].append(each)
    lines = ["| mutation | mutants | caught | harmless | missed | found as |", "| --- | --- | --- | --- | --- | --- |"]
    for name, group in by_class.items():
        caught = [each for each in group if each.finding is not None]
        missed = [each for each in group if each.finding is None and each.wrong]
        codes = Counter(each.finding.code for each in caught if each.finding is not None)
        shown = ", ".join(f"{code} {number}" for code, number in codes.most_common())
        harmless = len(group) - len(caught) - len(missed)
        lines.append(f"| {name} | {len(group)} | {len(caught)} | {harmless} | {len(missed)} | {shown} |")
    caught_all = sum(each.finding is not None for each in matrix.verdicts)
    lines.append(
        f"| **all** | {len(matrix.verdicts)} | {caught_all} | {len(matrix.harmless)} | {len(matrix.missed)} | |"
    )
    alarms = len(matrix.alarms)
    lines += ["", f"False alarms on the unmutated kernels: {alarms or 'none'}, in {matrix.clean} runs."]
    if matrix.harmless:
        lines += ["", "Harmless, with right results in every schedule:", ""]
        places = Counter((each.kernel, each.mutation, each.place) for each in matrix.harmless)
        lines += [f"* {kernel}, {mutation}: `{place}`" for kernel, mutation, place in places]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix; exit status 1 on a miss or a false alarm."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=(__doc__ or "").split("\n\n")[0])
    names = [kernel.name for kernel in kernels()]
    parser.add_argument("--only", action="append", choices=names, help="this kernel only; may be repeated")
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--write", action="store_true", help="write the table into docs/checking.md")
    options = parser.parse_args(arguments)
    console = Console()
    chosen = [kernel for kernel in kernels() if not options.only or kernel.name in options.only]
    matrix = run_matrix(chosen, console, options.schedules)
    text = table(matrix)
    console.print(text, markup=False)
    for each in (*matrix.missed, *matrix.alarms):
        console.print(f"{each.kernel}: {each.mutation} at {each.place}: {each.finding or 'wrong result'}", style="red")
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")
    return 1 if matrix.missed or matrix.alarms else 0


if __name__ == "__main__":
    sys.exit(main())
