"""Program text that does not parse, and equations that break the rule of their operation.

Whoever writes programs as text, or a pass, reads these; the functions of `palladio.numpy` keep users from most of them.
"""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from palladio.base.errors import PalladioError, ParseError
from palladio.ops import OPS, parse
from palladio.types.types import ArrayType


def message(text: str) -> str:
    """What is said about a program, without where the test called the parser."""
    with pytest.raises(PalladioError) as caught:
        parse(dedent(text))
    error = caught.value
    error.__traceback__ = None
    return str(error)


def line(text: str) -> str:
    """What is said about one equation of a program with some inputs."""
    return message(
        f"program f(i:i32[], b:bool[], v:f32[4], x:f32[2,3], n:i32[3], m:bool[2,3], r:ref<any, f32[2,3]>) {{\n"
        f"  {text}\n  return\n}}"
    )


TEXTS = {
    "program f(x:i32[]) { return x": "line 1: program text does not parse\n  expected: }\n  got:      end of text",
    "program f(x:i32[]) { return ? }": "line 1: a character that no token begins with\n  got:      '?'",
    "program f(x:i32[], x:i32[]) { return }": "line 1: the name is defined twice\n  got:      x",
    "program f() {\n  return y\n}": "line 2: the name is not defined\n  got:      y",
    "program f(x:c64[]) { return x }": "line 1: no dtype has this name\n  got:      c64",
    **{
        f"program f(x:f32[{size}]) {{ return }}": (
            f"line 1: a size is an integer from 0 to 2**63 - 1\n  got:      {size}"
        )
        for size in ("-4", "1.5", "None", "1e999", "True", "inf", "9223372036854775808")
    },
    "program f(x:f32[\N{ARABIC-INDIC DIGIT THREE}]) { return }": (
        "line 1: this number does not parse\n  got:      \N{ARABIC-INDIC DIGIT THREE}"
    ),
    "program f(x:f32[007]) { return }": "line 1: this number does not parse\n  got:      007",
    f"program f(x:f32[{'9' * 5000}]) {{ return }}": f"line 1: this number does not parse\n  got:      {'9' * 40}...",
    "program f() { return 1e999:f32 }": (
        "line 1: this number is beyond float64; infinity is written inf\n  got:      1e999"
    ),
    "program f() { return -1e39:f32 }": "line 1: f32 does not hold this number\n  got:      -1e39",
    "program f() { return 300:u8 }": "line 1: u8 does not hold this number\n  got:      300",
    "program f() { return nan:i32 }": "line 1: i32 does not hold this number\n  got:      nan",
    "program f() { return None:f32 }": "line 1: f32 does not hold this number\n  got:      None",
    f"program f() {{ return {'-' * 5000}1:i32 }}": (
        "line 1: program text does not parse\n  expected: number\n  got:      -"
    ),
    f"program f() {{ exp {{a={'(' * 5000}": "line 1: programs or parentheses are nested too deep to be read",
    f"program f() {{ {'scope {body=program a() { ' * 3000}": (
        "line 1: programs or parentheses are nested too deep to be read"
    ),
    "program f() { exp {a='\\x'} return }": "line 1: this string does not parse\n  got:      '\\x'",
    "program f": "line 1: program text does not parse\n  expected: (\n  got:      end of text",
    "program f() {\na": "line 2: no operation has this name\n  got:      a",
    "program f(x:f32[4]) { a:f32[2] = extract x.view(2)[$1] return a }": (
        "line 1: the selection has no such axis\n  expected: axes below 1\n  got:      1"
    ),
    "program f(x:f32[4]) { a:f32[2] = extract x.view(f32[3]: 2)[$0] return a }": (
        "the base of a view has the bytes of what it is taken of\n  expected: f32[4]\n  got:      f32[3]"
    ),
    "program f(x:f32[4]) { a:f32[2] = extract x.view(2)[$0 + 3] return a }": (
        "a view without a guard reaches outside axis 0\n  expected: elements 0 to 3\n  got:      elements 3 to 4"
    ),
    "program f(x:f32[4]) { a:f32[2] = extract x.view(2)[$0, $0] return a }": (
        "a view has a coordinate for each axis of its base\n  expected: 1\n  got:      2"
    ),
    "program f(x:ref<moon, f32[]>) { return }": "line 1: no memory space has this name\n  got:      moon",
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_is_no_program(text: str) -> None:
    assert message(text) == TEXTS[text]


def test_a_text_that_does_not_parse_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError) as caught:
        parse("nothing")
    assert isinstance(caught.value, ParseError)


LINES = {
    "a:f32[4] = dance v": "line 2: no operation has this name\n  got:      dance",
    "a:f32[3] = exp v": (
        "line 2: the declared output types are not those of exp\n  expected: f32[4]\n  got:      f32[3]"
    ),
    "a:f32[4] = add v": ("line 2: add takes other inputs or parameters\n  got:      missing a required argument: 'y'"),
    "a:f32[4] = exp v {speed=2}": (
        "line 2: exp takes other inputs or parameters\n  got:      got an unexpected keyword argument 'speed'"
    ),
    "a:f32[3] = load r[0, 0, 0]": "line 2: an index has more entries than f32[2,3] has axes",
    "a:f32[3] = load r[0]": "an index needs one entry per axis\n  expected: 2 entries\n  got:      1",
    "a:f32[2] = load r[0:1:0, 0]": (
        "a slice of axis 0 needs a size of at least 0 and a stride of at least 1\n  got:      size 1, stride 0"
    ),
    "a:f32[2] = load r[0:1.5, 0]": ("line 2: the end of a slice is an integer from 0 to 2**63 - 1\n  got:      1.5"),
    "a:f32[2] = load r[0:2:-1, 0]": "line 2: the step of a slice is an integer from 0 to 2**63 - 1\n  got:      -1",
    "a:f32[] = load r[1e999, 0]": "line 2: an index is an integer from 0 to 2**63 - 1\n  got:      1e999",
    "a:f32[6] = load r.reshape(-1)": "line 2: a size is an integer from 0 to 2**63 - 1\n  got:      -1",
    "a:f32[3,2] = load r.transpose(None, 0)": "line 2: an axis is an integer from 0 to 2**63 - 1\n  got:      None",
    "a:f32[2] = load r[i:1, 0]": "line 2: a slice of dynamic start is written start:+size",
    "a:f32[2] = load r[0:2, b]": "an index must be an integer or an integer array\n  got:      bool[]",
    "a:f32[2] = load r.turn(1)": "line 2: no transform has this name\n  got:      turn",
    "a:f32[2] = load v[0]": "the first input must be a reference\n  got:      f32[4]",
    "a:f32[3] = extract r[0, :]": "the first input must be an array\n  got:      ref<any, f32[2,3]>",
    "a:f32[] = atomic r[0, 0], 1.0:f32 {kind='whirl'}": (
        "no such atomic operation\n  expected: add, max, min, and, or, xor, exchange\n  got:      whirl"
    ),
    "a:f32[] = atomic r[0, 0], 1.0:f32 {kind='and'}": "atomic and takes integers or bool\n  got:      f32[]",
    "a:f32[2,3] = insert x[:, :], x {kind='whirl'}": "no such way to combine",
    "a:f32[2,3] = insert x[:, :], x {kind='or'}": "floats have no or\n  got:      f32[2,3]",
    "a:bool[2,3] = insert m[:, :], m {kind='add'}": "bools have no add\n  got:      bool[2,3]",
    "a:f32[4] = round v {half='up'}": "no such way to round a half\n  expected: even or away\n  got:      'up'",
    "a:f32[] = reduce_sum x {axes=(0, 0)}": "reduce_sum names an axis twice\n  got:      (0, 0)",
    "a:f32[2,3] = concatenate x, x {axis=2}": "concatenate has no such axis\n  expected: an axis of f32[2,3]",
    "a:f32[2,3] = pad x, 0.0:f32 {padding=((0, 0, 0),)}": (
        "(before, after, between) for each axis, with between at least 0"
    ),
    "a:f32[2,3] = reverse x {axes=(0, 0)}": "reverse names different axes of the array\n  expected: axes of f32[2,3]",
    "a:i32[3] = iota {shape=(3,), axis=1, dtype=i32}": "iota has no such axis\n  expected: an axis of (3,)",
    "a:f32[3] = broadcast 1.0:f32 {shape=(3,), axes=(0,)}": (
        "the axes name where each axis of the array goes, in order\n  got:      (0,)"
    ),
    "a:f32[4] = select i, v, v": "the predicate of select is a bool array\n  got:      i32[]",
    "a:f32[2,2] = dot_general m, x {contracting=((1,), (1,)), batch=((), ()), dtype=f32}": (
        "lhs of a product is not an array of bool\n  got:      bool[2,3]"
    ),
    "a:f32[2,3] = sort {axis=0, num_keys=1, stable=True}": "sort takes one array or more",
    "a:bool[2,3], c:bool[2,3] = combine_each m[:, :], m {kind='add'}": "atomic add takes numbers\n  got:",
    "a:i32[] = cond b {branches=(program a() {\n return 1:i32 }, program b() {\n return 2:i32 })}": (
        "the branch index is a scalar int32\n  got:      bool[]"
    ),
    "a:i32[] = cond i, i {branches=(program a() {\n return 1:i32 },)}": (
        "branch 0 is called with other types than it takes\n  expected: \n  got:      i32[]"
    ),
    "a:i32[] = loop 0:i32, 1.0:f32, i {body=program a(k:i32[], c:i32[]) {\nreturn c}, constants=0, step=1, unroll=1}": (
        "the bounds of a loop are scalar integers of one dtype\n  got:      i32[], f32[]"
    ),
    "a:i32[] = loop 0:i32, i, i {body=program a(k:i32[], c:i32[]) {\n return c }, constants=0, step=0, unroll=1}": (
        "the step is at least 1 and the unrolling at least 0\n  got:      0, 1"
    ),
    "a:i32[] = loop 0:i32, i, i {body=program a(k:i32[], c:i32[]) {\n return b }, constants=0, step=1, unroll=1}": (
        "line 3: the name is not defined\n  got:      b"
    ),
    "a:i32[] = loop 0:i32, i, i {body=program a(k:i32[], c:i32[]) {\nreturn 1.0:f32}, constants=0, step=1, unroll=1}": (
        "the loop body must return the types of its carry\n  expected: i32[]\n  got:      f32[]"
    ),
    "loop 0:i32, i, r {body=program a(k:i32[], c:ref<any, f32[2,3]>) {\n return }, constants=0, step=1, unroll=1}": (
        "a reference cannot be a loop carry; use it from inside the body\n  got:      ref<any, f32[2,3]>"
    ),
    "a:f32[] = scope {body=program a() {\n return 1.0:f32 }, allocations=(moon(1),)}": (
        "line 3: no record has this name\n  got:      moon"
    ),
    "launch {launch=Launch(stages=2)}": "line 2: Launch takes other fields\n  got:      Launch.__init__() got an",
    "launch {launch=Launch(meshes=(), output_types=5, output_refs=(), scratch=(), aliases=()), programs=()}": (
        "line 2: launch takes other inputs or parameters\n  got:      'int' object is not iterable"
    ),
    "a:f32[3] = broadcast 1.0:f32 {shape=3, axes=()}": (
        "line 2: broadcast takes other inputs or parameters\n  got:      'int' object is not iterable"
    ),
    "a:f32[2,2] = dot_general x, x {contracting=7, batch=((), ()), dtype=f32}": (
        "line 2: dot_general takes other inputs or parameters\n  got:      'int' object is not subscriptable"
    ),
}


@pytest.mark.parametrize("text", LINES)
def test_an_equation_that_breaks_a_rule(text: str) -> None:
    assert LINES[text] in line(text)


def test_a_pass_that_gives_an_operation_too_few_inputs() -> None:
    with pytest.raises(PalladioError, match="add takes 2 inputs\n  got:      1"):
        OPS["add"].type(ArrayType((), np.dtype(np.float32)))
