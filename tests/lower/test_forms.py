"""The tables of the lowered forms: what each refuses with which reason, and that library kernels pass through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from palladio import library
from palladio.base import trees
from palladio.cli.show import FORMS, Stage
from palladio.ir.core import Eqn, Program, walk
from palladio.library import hopper
from palladio.lower.forms import FOLDED, INSIDE, PLACED, SCHEDULED, SPLIT
from palladio.ops import parse
from palladio.ops.grid import grid_call
from palladio.ops.threads.launch import launch
from palladio.passes.pipeline import Form, run_passes
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.types import ArrayType
from tests.round_trip import check_round_trip


def reason(form: Form, text: str) -> str:
    """The reason why a program is not in a form."""
    found = form.broken(parse(dedent(text)))
    assert found is not None, "the form takes the program"
    return found[1]


def of_launch(scratch: str, placements: str, body: str, roles: str = "") -> str:
    """A launch of two warpgroups with these buffers."""
    names = ", ".join(f"b{n}:{type}" for n, type in enumerate(scratch.split("; ")) if type)
    return f"""
        program f() {{
          r:i32[2] = launch {{launch=Launch(
            meshes=(MeshShape(label='thread', axes=(MeshAxis(name='wg', size=2, kind='thread'),)),),
            output_types=(i32[2],), output_refs=(ref<gmem, i32[2]>,), aliases=(),
            scratch=({scratch.replace(";", ",")}{"," if scratch else ""}), placements=({placements}){roles}),
          programs=(program body(wg:i32[], o:ref<gmem, i32[2]>{", " if names else ""}{names}) {{
            {body}
            return
          }},)}}
          return r
        }}
    """


def placed(offset: int, alignment: int = 128) -> str:
    return (
        f"Placement(scope='block', mesh=0, axes=(), bytes=400, alignment={alignment}, offset={offset}, arrivals=None)"
    )


SHARED = "ref<smem, i32[100]>"
CHOICE = """
            a:bool[] = eq wg, 1:i32
            n:i32[] = convert a {dtype=i32}
            cond n, o {branches=(program no(o:ref<gmem, i32[2]>) {
              return
            }, program yes(o:ref<gmem, i32[2]>) {
              store o[1], 5:i32
              return
            })}"""
GRID = """
        program f(x:i32[7]) {{
          y:i32[7] = grid_call x {{grid=Grid(sizes=(2,), scalars=0,
            inputs=(BlockMap(dims=(Blocked(block_size=4),), ref=ref<any, i32[4]>, index_map=program whence(i:i32[]) {{
              return i
            }}, inside=({}),),),
            outputs=(BlockMap(dims=(Blocked(block_size=4),), ref=ref<any, i32[4]>, index_map=program to(i:i32[]) {{
              return i
            }}),),
            output_types=(i32[7],), scratch=(), aliases=(), parallel=(False,)),
          kernel=program k(i:i32[], x:ref<any, i32[4]>, o:ref<any, i32[4]>) {{
            a:i32[4] = load x
            store o, a
            return
          }}}}
          return y
        }}
"""


def scheduled(tasks: str = "()", steps: str = "(0,)", access: str = "guarded", write_back: bool = True) -> str:
    """The grid with a schedule."""
    return GRID.format("False,").replace(
        "parallel=(False,)",
        f"""parallel=(False,), schedule=Schedule(tasks={tasks}, steps={steps}, blocks=(
              BlockView(access='{access}', write_back=False), BlockView(access='guarded', write_back={write_back})),
              starts=(OutputStart(kind='stored', once=True, marks=None),))""",
    )


BROKEN: dict[str, tuple[Form, str, str]] = {
    "a choice of one outcome": (
        FOLDED,
        """
        program f(x:i32[]) {
          a:i32[] = mul 2:i32, 0:i32
          r:i32[] = cond a, x {branches=(program p(x:i32[]) {
            return x
          },)}
          return r
        }
        """,
        "it chooses by a number that can only have one value, and is not a constant",
    ),
    "a known operand": (
        FOLDED,
        """
        program f(x:i32[]) {
          a:i32[] = rem x, 1:i32
          b:i32[] = add x, a
          return b
        }
        """,
        "an operand can only have one value, and is not a constant",
    ),
    "no placement": (PLACED, of_launch(SHARED, "", ""), "it has scratch buffers without a placement"),
    "an odd offset": (
        PLACED,
        of_launch(SHARED, placed(64) + ",", ""),
        "a buffer does not begin at a multiple of its alignment",
    ),
    "overlapping buffers": (
        PLACED,
        of_launch(f"{SHARED}; {SHARED}", f"{placed(0)}, {placed(384)}", ""),
        "two buffers of a block overlap in its shared memory",
    ),
    "a block past the end": (INSIDE, GRID.format("True"), "a block is marked as inside its array, and may leave it"),
    "an index past the end": (
        INSIDE,
        """
        program f(i:i32[], x:i32[4]) {
          a:i32[] = extract x[i!]
          return a
        }
        """,
        "an index is marked as inside its array, and may leave it",
    ),
    "no schedule": (SCHEDULED, GRID.format("False,"), "it has no schedule"),
    "an axis left out": (
        SCHEDULED,
        scheduled(steps="()"),
        "its tasks and steps together are not the axes of its grid",
    ),
    "a view past the end": (
        SCHEDULED,
        scheduled(access="view"),
        "a block is a view without a guard, and may leave its array",
    ),
    "a write that is lost": (
        SCHEDULED,
        scheduled(write_back=False),
        "the blocks that are written back are not those that the kernel writes",
    ),
    "an output without values": (
        SCHEDULED,
        scheduled().replace("store o, a", "store o[1], 2:i32"),
        "an output begins without values, and may be read before it is stored",
    ),
    "tasks that wait": (
        SCHEDULED,
        scheduled(tasks="(0,)", steps="()")
        .replace("scratch=()", "scratch=(ref<semaphore, i32[]>,)")
        .replace("o:ref<any, i32[4]>)", "o:ref<any, i32[4]>, s:ref<semaphore, i32[]>)")
        .replace("store o, a", "store o, a\n            semaphore_signal s, 1:i32"),
        "its kernel waits for what other steps start, and its steps are not in order",
    ),
    "no roles": (SPLIT, of_launch("", "", CHOICE), "its programs have no roles"),
    "roles without programs": (
        SPLIT,
        of_launch("", "", "store o[wg], 1:i32", ", roles=((0, 1),)"),
        "its threads have more roles than its program has branches",
    ),
    "a role that chooses": (
        SPLIT,
        of_launch("", "", CHOICE, ", roles=((0, 0),)"),
        "warpgroups of one role run different branches inside of it",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_form_refuses_with_its_reason(case: str) -> None:
    form, text, expected = BROKEN[case]
    assert reason(form, text) == expected


def test_a_proven_mark_is_taken() -> None:
    assert INSIDE.broken(parse(dedent(GRID.format("False,")))) is None


def lengths(x: Any, out: Any, total: Any) -> None:
    """The kernel of `palladio/architecture.py`."""
    total[...] = np.zeros_like(total[...])

    @pl.loop(0, 3)
    def add(column: Any) -> None:
        total[...] += x[:, column] * x[:, column]

    out[...] = np.sqrt(total[...])


LENGTHS = pl.pallas_call(
    lengths,
    out_shape=pl.ShapeDtypeStruct((8,), np.float32),
    grid=(2,),
    in_specs=[pl.BlockSpec((4, 3), lambda i: (i, 0))],
    out_specs=pl.BlockSpec((4,), lambda i: (i,)),
    scratch_shapes=[pltpu.VMEM((4,), np.float32)],
)
F32, BF16 = dtypes.FLOAT32, dtypes.BFLOAT16
CONFIG = hopper.MatmulConfig(tile_m=64, tile_n=64, tile_k=64, stages=3, epilogue_n=32, blocks=4)
KERNELS: dict[str, tuple[Callable[..., Any], Sequence[ArrayType]]] = {
    "architecture": (LENGTHS, (ArrayType((8, 3), F32),)),
    "gmm": (
        partial(library.gmm, tiling=(64, 64, 64)),
        (ArrayType((100, 64), F32), ArrayType((3, 64, 64), F32), ArrayType((3,), dtypes.INT32)),
    ),
    "hopper.matmul": (partial(hopper.matmul, config=CONFIG), (ArrayType((100, 64), BF16), ArrayType((64, 64), BF16))),
}


@pytest.fixture(scope="module")
def traced() -> Callable[[str], Program]:
    found: dict[str, Program] = {}

    def program(name: str) -> Program:
        if name not in found:
            function, types = KERNELS[name]
            found[name] = stage(lambda *values: trees.flatten(function(*values))[0], types, wrap, name="case").program
        return found[name]

    return program


def calls(program: Program, shown: Stage) -> list[Eqn]:
    lowered = run_passes(program, shown.passes, verify_each=True)
    return [eqn for eqn in walk(lowered) if eqn.op in (grid_call, launch)]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_kernel_is_shown_and_reads_back(name: str, form: str, traced: Callable[[str], Program]) -> None:
    for eqn in calls(traced(name), FORMS[form]):
        check_round_trip(parse(FORMS[form].text(eqn)))
