"""Which warpgroups run which program."""

from __future__ import annotations

from textwrap import dedent

from palladio.ir.text import print_program
from palladio.lower.roles import Role, roles
from palladio.ops import parse


def found(text: str, count: int) -> tuple[Role, ...]:
    program = parse(dedent(text))
    return roles(program, program.inputs[0], count)


def shown(role: Role) -> str:
    return print_program(role.program)


CHOICE = """
    program f(group:i32[], out:ref<gmem, i32[8]>) {
      a:bool[] = eq group, 2:i32
      b:i32[] = convert a {dtype=i32}
      cond b, group, out {branches=(program others(group:i32[], out:ref<gmem, i32[8]>) {
        store out[group], 1:i32
        return
      }, program last(group:i32[], out:ref<gmem, i32[8]>) {
        store out[group], 2:i32
        return
      })}
      return
    }
"""


def test_those_that_choose_alike_share_a_program() -> None:
    first, second = found(CHOICE, 3)
    assert (first.threads, second.threads) == ((0, 1), (2,))


def test_a_choice_that_is_known_is_gone() -> None:
    first, _ = found(CHOICE, 3)
    assert (
        shown(first)
        == dedent(
            """
        program f(group:i32[], out:ref<gmem, i32[8]>) {
          store out[group], 1:i32
          return
        }
        """
        ).strip()
    )


def test_the_number_of_a_thread_alone_is_a_constant() -> None:
    _, second = found(CHOICE, 3)
    assert "store out[2], 2:i32" in shown(second)


def test_choices_inside_of_a_loop_split_too() -> None:
    text = """
        program f(group:i32[], out:ref<gmem, i32[8]>) {
          loop 0:i32, 4:i32, group, out {body=program body(step:i32[], group:i32[], out:ref<gmem, i32[8]>) {
            a:bool[] = lt group, 1:i32
            b:i32[] = convert a {dtype=i32}
            cond b, step, out {branches=(program no(step:i32[], out:ref<gmem, i32[8]>) {
              return
            }, program yes(step:i32[], out:ref<gmem, i32[8]>) {
              store out[step], step
              return
            })}
            return
          }, constants=2, step=1, unroll=1}
          return
        }
    """
    first, second = found(text, 3)
    assert (first.threads, second.threads) == ((0,), (1, 2))
    assert "cond" not in shown(first) and "store" in shown(first)
    assert "store" not in shown(second)


def test_what_differs_by_data_alone_stays_one_program() -> None:
    text = """
        program f(group:i32[], out:ref<gmem, i32[8]>) {
          a:i32[] = mul group, 2:i32
          store out[a], a
          return
        }
    """
    (only,) = found(text, 4)
    assert only.threads == (0, 1, 2, 3)


def test_a_program_without_a_number_has_one_role() -> None:
    program = parse("program f(x:ref<gmem, i32[8]>) {\n  return\n}")
    assert [role.threads for role in roles(program, None, 1)] == [(0,)]
