"""References become values: what each stateful operation turns into."""

from __future__ import annotations

import pytest

from palladio.base.errors import InternalError
from palladio.base.locations import Location
from palladio.ir.bind import form
from palladio.ir.core import Literal, Op, Program, Var
from palladio.ir.text import print_program
from palladio.ir.verify import verify
from palladio.ops import OPS, parse
from palladio.passes import discharge, discharge_program, run_passes
from palladio.types import dtypes
from palladio.types.types import SMEM, RefType
from tests.passes.ir import check, check_unchanged


def test_a_reference_becomes_its_value_and_its_last_value_an_output() -> None:
    check(
        discharge,
        """
        program f(x:ref<any, i32[2]>, o:ref<smem, i32[2]>, v:i32[]) {
          a:i32[2] = load x[:]
          store o[0], v
          return a
        }
        """,
        """
        program f(x:i32[2], o:i32[2], v:i32[]) {
          a:i32[2] = extract x[:]
          o_0:i32[2] = insert o[0], v {kind='set'}
          return a, x, o_0
        }
        """,
    )


def test_whole_loads_and_stores_need_no_equation() -> None:
    check(
        discharge,
        """
        program f(x:ref<any, i32[2]>, o:ref<any, i32[2]>) {
          a:i32[2] = load x
          store o, a
          b:i32[2] = swap o, a
          return b
        }
        """,
        """
        program f(x:i32[2], o:i32[2]) {
          return x, x, x
        }
        """,
    )


@pytest.mark.parametrize(
    "path",
    [
        "[1, :]",
        "[:, 0:+2:2]",
        "[i, 1:3]",
        "[0, i:+2]",
        "[at, :]",
        "[at, i]",
        ".reshape(6)[2:4]",
        ".transpose(1, 0)[i, :]",
        ".bitcast(f32)[0, :].bitcast(i32)",
        ".reshape(3, 2)[i, :]",
    ],
)
def test_paths_are_kept(path: str) -> None:
    program = parse(
        f"""
        program f(x:ref<any, i32[2,3]>, i:i32[], at:i32[2]) {{
          a:{_type_of(path)} = load x{path}
          b:{_type_of(path)} = swap x{path}, a
          store x{path}, b
          accumulate x{path}, a
          return b
        }}
        """
    )
    lines = [line.strip() for line in print_program(discharge_program(program)).splitlines()]
    kind = _type_of(path)
    assert lines == [
        "program f(x:i32[2,3], i:i32[], at:i32[2]) {",
        f"a:{kind} = extract x{path}",
        f"b:{kind} = extract x{path}",
        f"x_0:i32[2,3] = insert x{path}, a {{kind='set'}}",
        f"x_1:i32[2,3] = insert x_0{path}, b {{kind='set'}}",
        f"x_2:i32[2,3] = insert x_1{path}, a {{kind='add'}}",
        "return b, x_2",
        "}",
    ]


def _type_of(path: str) -> str:
    shapes = {"[:, 0:+2:2]": "2,2", "[at, :]": "2,3", "[1, :]": "3", ".bitcast(f32)[0, :].bitcast(i32)": "3"}
    return f"i32[{shapes.get(path, '2')}]"


def test_a_branch_that_writes_returns_the_new_value_and_the_others_the_old_one() -> None:
    check(
        discharge,
        """
        program f(i:i32[], x:ref<any, i32[]>, o:ref<any, i32[]>) {
          a:i32[] = cond i, x, o {branches=(program yes(x:ref<any, i32[]>, o:ref<any, i32[]>) {
            b:i32[] = load x
            store o, b
            return b
          }, program no(x:ref<any, i32[]>, o:ref<any, i32[]>) {
            return 0:i32
          })}
          return a
        }
        """,
        """
        program f(i:i32[], x:i32[], o:i32[]) {
          a:i32[], o_0:i32[] = cond i, x, o {branches=(program yes(x:i32[], o:i32[]) {
            return x, x
          }, program no(x:i32[], o:i32[]) {
            return 0:i32, o
          })}
          return a, x, o_0
        }
        """,
    )


def test_a_loop_carries_what_it_writes_and_keeps_what_it_reads_constant() -> None:
    check(
        discharge,
        """
        program f(o:ref<any, i8[4]>, x:ref<any, i8[4]>, s:i8[]) {
          r:i8[] = loop 0:i32, 4:i32, o, x, s {body=program b(i:i32[], o:ref<any, i8[4]>, x:ref<any, i8[4]>, s:i8[]) {
            a:i8[] = load x[i]
            store o[i], s
            t:i8[] = add s, a
            return t
          }, constants=2, step=1, unroll=1}
          return r
        }
        """,
        """
        program f(o:i8[4], x:i8[4], s:i8[]) {
          r:i8[], o_0:i8[4] = loop 0:i32, 4:i32, x, s, o {body=program b(i:i32[], x:i8[4], s:i8[], o:i8[4]) {
            a:i8[] = extract x[i]
            o_0:i8[4] = insert o[i], s {kind='set'}
            t:i8[] = add s, a
            return t, o_0
          }, constants=1, step=1, unroll=1}
          return r, o_0, x
        }
        """,
    )


def test_a_while_loop_carries_what_it_writes_into_its_condition_too() -> None:
    check(
        discharge,
        """
        program f(n:ref<any, i32[]>) {
          repeat n {condition=program more(n:ref<any, i32[]>) {
            a:i32[] = load n
            b:bool[] = gt a, 0:i32
            return b
          }, body=program less(n:ref<any, i32[]>) {
            accumulate n, -1:i32
            return
          }, constants=1}
          return
        }
        """,
        """
        program f(n:i32[]) {
          n_0:i32[] = repeat n {condition=program more(n:i32[]) {
            b:bool[] = gt n, 0:i32
            return b
          }, body=program less(n:i32[]) {
            n_0:i32[] = insert n, -1:i32 {kind='add'}
            return n_0
          }, constants=0}
          return n_0
        }
        """,
    )


def test_a_scope_becomes_its_body_on_uninitialised_values() -> None:
    check(
        discharge,
        """
        program f(o:ref<any, f32[2]>) {
          scope o {body=program body(o:ref<any, f32[2]>, t:ref<smem, f32[2]>, u:ref<smem, i8[]>) {
            a:f32[2] = load t
            store o[:], a
            store u, 1:i8
            return
          }, allocations=(ref<smem, f32[2]>, ref<smem, i8[]>)}
          return
        }
        """,
        """
        program f(o:f32[2]) {
          a:f32[2] = broadcast nan:f32 {shape=(2,), axes=()}
          o_1:f32[2] = insert o[:], a {kind='set'}
          return o_1
        }
        """,
    )


def test_control_flow_nests() -> None:
    check(
        discharge,
        """
        program f(n:i32[]) {
          r:i32[] = loop 0:i32, n, 0:i32 {body=program body(i:i32[], s:i32[]) {
            t:i32[] = scope i, s {body=program inner(i:i32[], s:i32[], acc:ref<regs, i32[]>) {
              store acc, s
              cond i, acc {branches=(program a(acc:ref<regs, i32[]>) {
                return
              }, program b(acc:ref<regs, i32[]>) {
                accumulate acc, 1:i32
                return
              })}
              u:i32[] = load acc
              return u
            }, allocations=(ref<regs, i32[]>,)}
            return t
          }, constants=0, step=1, unroll=1}
          return r
        }
        """,
        """
        program f(n:i32[]) {
          r:i32[] = loop 0:i32, n, 0:i32 {body=program body(i:i32[], s:i32[]) {
            acc:i32[] = cond i, s {branches=(program a(acc:i32[]) {
              return acc
            }, program b(acc:i32[]) {
              acc_0:i32[] = insert acc, 1:i32 {kind='add'}
              return acc_0
            })}
            return acc
          }, constants=0, step=1, unroll=1}
          return r
        }
        """,
    )


def test_chosen_references_only() -> None:
    program = parse(
        """
        program f(x:ref<any, i32[2]>, acc:ref<regs, i32[]>) {
          loop 0:i32, 2:i32, x, acc {body=program body(i:i32[], x:ref<any, i32[2]>, acc:ref<regs, i32[]>) {
            a:i32[] = load x[i]
            accumulate acc, a
            b:i32[] = load acc
            store x[i], b
            return
          }, constants=2, step=1, unroll=1}
          return
        }
        """
    )
    found = discharge_program(program, lambda ref: ref.space.name == "regs")
    verify(found)
    assert [str(type) for type in (*found.input_types, *found.output_types)] == ["ref<any, i32[2]>", "i32[]", "i32[]"]
    assert "store x[i], acc_0" in print_program(found)


def test_a_program_without_references_is_left_alone() -> None:
    check_unchanged(
        discharge,
        """
        program f(x:i32[]) {
          a:i32[] = add x, x
          return a
        }
        """,
    )


def test_equations_keep_their_places() -> None:
    here = Location("kernel.py", 7, 7, 0, 4, "kernel")
    ref = Var(RefType((), dtypes.INT32, SMEM))
    eqn = form(OPS["accumulate"], [ref, Literal(1, dtypes.INT32)], {"transforms": ()}, here)
    found = discharge_program(Program((ref,), (eqn,), ()))
    assert [eqn.location for eqn in found.eqns] == [here]


def test_two_uses_of_a_written_reference_in_one_equation_are_refused() -> None:
    body = "program body(i:i32[], a:ref<any, i32[]>, b:ref<any, i32[]>) { store a, i return }"
    loop = f"loop 0:i32, 2:i32, x, x {{body={body}, constants=2, step=1, unroll=1}}"
    text = f"program f(x:ref<any, i32[]>) {{ {loop} return }}"
    with pytest.raises(InternalError, match="passed twice and written"):
        verify(parse(text))


def test_two_uses_of_a_reference_that_is_only_read_are_fine() -> None:
    loads = "c:i32[] = load a d:i32[] = load b e:i32[] = add c, d"
    body = f"program body(a:ref<any, i32[]>, b:ref<any, i32[]>) {{ {loads} return e }}"
    program = parse(f"program f(x:ref<any, i32[]>) {{ r:i32[] = scope x, x {{body={body}, allocations=()}} return r }}")
    verify(program)
    assert "add x, x" in print_program(run_passes(program, [discharge]))


def test_an_operation_on_references_without_a_rule_is_named() -> None:
    op = Op("peek", "looks", lambda ref: (ref.array,), lambda ref: (ref,))
    ref = Var(RefType((), dtypes.INT32))
    program = Program((ref,), (form(op, [ref], {}, None),), ())
    with pytest.raises(InternalError, match="'peek' uses references and has no discharge rule"):
        discharge_program(program)
