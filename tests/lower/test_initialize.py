"""Initialisation of blocks: where the form has it, the reasons of the form, and what the evaluator notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from textwrap import dedent, indent

import numpy as np
import pytest

from palladio.base.errors import InternalError
from palladio.ir.core import Atom, Eqn, Program, Var
from palladio.ir.evaluate import evaluate
from palladio.ir.text import print_program
from palladio.lower import bound_zeros, fuse, initialize, join_products, keep_arrays, view
from palladio.lower.grids.initialize import INITIALIZED
from palladio.lower.ranges import constants
from palladio.ops import parse
from palladio.passes.pipeline import run_passes

PASSES = (view, fuse, bound_zeros, join_products, keep_arrays, initialize)

ROWS = """
m:bool[2,4] = broadcast t {shape=(2, 4), axes=(0,)}
v:f32[2,4] = broadcast 1.0:f32 {shape=(2, 4), axes=()}
"""


def call(body: str, marks: str = "InitMarks(counts=(2, 1), axis=0, rows=2)") -> Program:
    """A scheduled call of a kernel with these equations; its output has marks of rows. `t` chooses rows."""
    return parse(f"""
        program f(t:bool[2]) {{
          y:f32[4,4] = grid_call t {{grid=Grid(sizes=(2,), scalars=0,
            inputs=(BlockMap(dims=(Blocked(block_size=2),), ref=ref<any, bool[2]>, index_map=program from(i:i32[]) {{
              return 0:i32
            }}),),
            outputs=(BlockMap(dims=(Blocked(block_size=2), Blocked(block_size=4)), ref=ref<any, f32[2,4]>,
              index_map=program to(i:i32[]) {{
              return i, 0:i32
            }}),),
            output_types=(f32[4,4],), scratch=(), aliases=(), parallel=(True,),
            schedule=Schedule(tasks=(0,), steps=(), blocks=(BlockView(access='guarded', write_back=False),
              BlockView(access='guarded', write_back=True)),
              starts=(OutputStart(kind='marks', once=False, marks={marks}),))),
          kernel=program k(i:i32[], c:ref<any, bool[2]>, o:ref<any, f32[2,4]>) {{
            t:bool[2] = load c
            n:i32[] = convert i {{dtype=i32}}
{indent(dedent(body).strip(), " " * 12)}
            return
          }}}}
          return y
        }}""")


LOOP = """
loop 0:i32, n, o {{body=program row(j:i32[], o:ref<any, f32[2,4]>) {{
  {first}
  return
}}, constants=1, step=1, unroll=1}}
"""

BROKEN = {
    "a read": ("a:f32[2,4] = load o\nstore o, a", "a block may be accessed before it has values"),
    "a store of a part": (
        "store o[0, 1], 1.0:f32",
        "a block may be accessed before it has values",
    ),
    "a read in a branch": (
        """
        cond n, o {branches=(program none(o:ref<any, f32[2,4]>) {
          return
        }, program some(o:ref<any, f32[2,4]>) {
          a:f32[2,4] = load o
          store o, a
          return
        },)}
        """,
        "a block may be accessed before it has values",
    ),
    "a store of a part in each step of a loop": (
        LOOP.format(first="store o[0, j], 1.0:f32"),
        "each step of a loop looks at the marks of a block",
    ),
    "a read after a branch that has initialised": (
        """
        cond n, o {branches=(program some(o:ref<any, f32[2,4]>) {
          initialize o {stored=False}
          return
        },)}
        a:f32[2,4] = load o
        store o, a
        """,
        "a block may be accessed before it has values",
    ),
    "a store that does not come": (
        "initialize o {stored=True}\na:f32[2,4] = load o\nstore o, a",
        "a block counts as stored, and the next access to it does not store all of it",
    ),
    "rows that are not marked": (
        f"{ROWS}store_rows o, v, m {{marks=False}}",
        "rows are stored to a block that begins without values, and not marked",
    ),
    "marks of what has values": (
        f"{ROWS}initialize o {{stored=False}}\nstore_rows o, v, m {{marks=True}}",
        "rows are marked of a block that has no marks of rows, or has all its values",
    ),
}
WRITTEN_BY_HAND = ("a store that does not come", "marks of what has values")
"""What the pass does not write, and does not change where it is."""


@pytest.mark.parametrize("case", BROKEN)
def test_the_form_refuses_with_its_reason(case: str) -> None:
    body, reason = BROKEN[case]
    found = INITIALIZED.broken(call(body))
    assert found is not None
    assert found[1] == reason


@pytest.mark.parametrize("case", [case for case in BROKEN if case not in WRITTEN_BY_HAND])
def test_the_pass_makes_the_form(case: str) -> None:
    made = initialize.run(call(BROKEN[case][0]))
    assert INITIALIZED.broken(made) is None
    assert initialize.run(made) is made


def kernel_lines(program: Program, *passes: object) -> list[str]:
    (eqn,) = run_passes(program, passes, verify_each=True).eqns
    return [line.strip() for line in print_program(eqn.kernel).splitlines()]


def test_a_block_is_initialised_once_before_its_accesses() -> None:
    lines = kernel_lines(call("a:f32[2,4] = load o\nb:f32[2,4] = neg a\nstore o, b"), initialize)
    assert [line for line in lines if line.startswith("initialize")] == ["initialize o {stored=False}"]
    assert lines[lines.index("initialize o {stored=False}") + 1].endswith("= load o")


def test_a_block_is_initialised_before_the_loop_whose_steps_store_parts_of_it() -> None:
    lines = kernel_lines(call(LOOP.format(first="store o[0, j], 1.0:f32")), initialize)
    assert [line for line in lines if line.startswith("initialize")] == ["initialize o {stored=False}"]
    assert lines[lines.index("initialize o {stored=False}") + 1].startswith("loop ")


def test_a_block_that_each_step_of_a_loop_stores_whole_is_marked_there() -> None:
    whole = "v:f32[2,4] = broadcast 1.0:f32 {shape=(2, 4), axes=()}\n  store o, v"
    lines = kernel_lines(call(LOOP.format(first=whole)), initialize)
    assert [line for line in lines if line.startswith("initialize")] == ["initialize o {stored=True}"]
    assert lines[lines.index("initialize o {stored=True}") - 1].endswith("= broadcast 1.0:f32 {shape=(2, 4), axes=()}")


def nest(levels: int, body: str) -> str:
    for level in range(levels):
        body = LOOP.format(first=body).replace("loop 0:i32, n,", "loop 0:i32, 2:i32,").replace("row(j", f"row{level}(j")
    return body


@pytest.mark.parametrize("stored", ["o", "o[0, j]"])
def test_the_programs_of_a_nest_of_loops_are_each_looked_at_as_often(
    stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Counter[Program] = Counter()

    def counted(eqn: Eqn, program: Program) -> Iterable[tuple[Var, Atom]]:
        looks[program] += 1
        return constants(eqn, program)

    monkeypatch.setattr(import_module("palladio.lower.grids.initialize"), "constants", counted)
    value = "v:f32[2,4] = broadcast 1.0:f32 {shape=(2, 4), axes=()}\n" if stored == "o" else "v:f32[] = neg 1.0:f32\n"
    counts = []
    for levels in (3, 6):
        looks.clear()
        INITIALIZED.broken(call(nest(levels, f"{value}store {stored}, v")))
        assert len(looks) == levels
        counts.append(max(looks.values()))
    assert counts[0] == counts[1]


def test_rows_are_stored_without_initialising_the_others() -> None:
    lines = kernel_lines(
        call(f"{ROWS}store_masked o, v, m"), view, fuse, bound_zeros, join_products, keep_arrays, initialize
    )
    assert not any(line.startswith("initialize") for line in lines)
    assert lines[-3].startswith("store_rows o,")
    assert lines[-3].endswith("{marks=True}")


def test_a_block_with_one_mark_is_initialised_before_rows_of_it_are_stored() -> None:
    program = call(f"{ROWS}store_masked o, v, m", "InitMarks(counts=(2, 1), axis=None, rows=1)")
    lines = kernel_lines(program, *PASSES)
    assert lines[-4] == "initialize o {stored=False}"
    assert lines[-3].startswith("store_rows o,")
    assert lines[-3].endswith("{marks=False}")


def test_outputs_that_begin_with_values_are_left_alone() -> None:
    text = print_program(call("store o[0, 1], 1.0:f32"))
    program = parse(
        text.replace("kind='marks'", "kind='fill'").replace("InitMarks(counts=(2, 1), axis=0, rows=2)", "None")
    )
    assert initialize.run(program) is program


def test_the_evaluator_notices_what_is_read_though_it_counts_as_stored() -> None:
    program = call("initialize o {stored=True}\na:f32[2,4] = load o\nstore o, a")
    assert np.isnan(evaluate(program, [np.array([True, False])])[0]).all()


def test_the_evaluator_notices_a_mask_of_parts_of_rows() -> None:
    program = parse(
        "program f(o:ref<any, f32[1,2]>, v:f32[1,2], m:bool[1,2]) {\n  store_rows o, v, m {marks=False}\n  return\n}"
    )
    with pytest.raises(InternalError, match="a mask of whole rows chooses parts of some"):
        evaluate(program, [np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32), np.array([[True, False]])])
