"""Fusion: what is computed together, what is kept in memory, and the reasons of the forms."""

from __future__ import annotations

import sys
from textwrap import dedent, indent

import numpy as np
import pytest

from palladio.base.errors import InternalError
from palladio.ir.core import Program
from palladio.ir.evaluate import evaluate
from palladio.ir.text import print_program
from palladio.lower import bound_zeros, fuse, join_products, keep_arrays
from palladio.lower.fusion.bound_zeros import BOUNDED
from palladio.lower.fusion.form import FUSED
from palladio.lower.fusion.join_products import JOINED
from palladio.lower.fusion.keep_arrays import ARRAYS_KEPT
from palladio.ops import parse
from palladio.passes.pipeline import run_passes
from tests.one_point import one_point_call

FUSION = (fuse, bound_zeros, join_products, keep_arrays)
FORMS = (FUSED, BOUNDED, JOINED, ARRAYS_KEPT)

DOT = "{contracting=((1,), (0,)), batch=((), ()), dtype=f32}"

ALONE = "{contracting=((1,), (0,)), batch=((), ())}"


def call(body: str, inputs: str = "x:f32[8,8], y:f32[8,8]", outputs: str = "r") -> Program:
    """A call of a kernel with these equations."""
    text = f"program f({inputs}) {{\n{indent(dedent(body).strip(), '  ')}\n  return {outputs}\n}}"
    return one_point_call(parse(text))


def fused(program: Program) -> list[str]:
    """The lines of the fused kernel, without its loads and stores of whole blocks."""
    (eqn,) = run_passes(program, FUSION, verify_each=True).eqns
    lines = [line.strip() for line in print_program(eqn.kernel).splitlines()[1:-2]]
    return [line for line in lines if not line.startswith("store ") and " = load " not in line]


BROKEN = {
    "a product that is added to": (
        f"p:f32[8,8] = dot_general x, x {DOT}\nr:f32[8,8] = add y, p",
        "a product is computed before the addition to it, which can be the start of its sums",
    ),
    "products that add to one another": (
        f"""
        p:f32[8,8] = dot_accumulate y, x, x {ALONE}
        r:f32[8,8] = dot_accumulate p, y, x {ALONE}
        """,
        "products that add to one another are computed one after the other, each to memory",
    ),
    "a product that is rounded": (
        f"p:f32[8,8] = dot_general x, y {DOT}\nr:bf16[8,8] = convert p {{dtype=bf16}}",
        "a product is computed before it is rounded, which it can do with its sums",
    ),
    "a block that a choice leaves": (
        """
        a:f32[8,8] = load o
        m:bool[8,8] = lt y, x
        b:f32[8,8] = select m, x, a
        store o, b
        r:f32[8,8] = load o
        """,
        "a block is loaded only for what a choice leaves as it was, which is stored there again",
    ),
    "a few elements of a sorted line": (
        """
        a:f32[8,8] = sort x {axis=1, num_keys=1, stable=True}
        b:f32[8,8] = reverse a {axes=(1,)}
        r:f32[8,3] = extract b.view(8, 3)[$0, $1]
        """,
        "all of a line is sorted, and only its greatest few elements are used",
    ),
    "a mask of rows": (
        """
        m:bool[8,8] = broadcast t {shape=(8, 8), axes=(0,)}
        store_masked o, x, m
        r:f32[8,8] = load o
        """,
        "a mask chooses whole rows, and its store goes through elements",
    ),
    "a product of masked operands": (
        f"""
        i:i32[8] = iota {{shape=(8,), dtype=i32, axis=0}}
        m:bool[8] = lt i, n
        b:bool[8,8] = broadcast m {{shape=(8, 8), axes=(1,)}}
        c:bool[8,8] = broadcast m {{shape=(8, 8), axes=(0,)}}
        d:f32[8,8] = select b, x, 0.0:f32
        e:f32[8,8] = select c, y, 0.0:f32
        r:f32[8,8] = dot_general d, e {DOT}
        """,
        "a product, or a store under a mask, does not say outside of which positions its operands are zero",
    ),
    "an array with two uses": (
        "a:f32[8,8] = exp x\nr:f32[8,8] = mul a, a",
        "an array with several uses is computed at each of them",
    ),
    "a long chain": (
        "\n".join(f"{'r' if n == 65 else f'a{n}'}:f32[8,8] = neg {f'a{n - 1}' if n else 'x'}" for n in range(66)),
        "more than 64 operations in a row are one loop",
    ),
    "memory that changes": (
        """
        b:f32[4] = load o
        c:f32[4] = neg b
        store o, y
        r:f32[4] = add c, y
        """,
        "an array is computed from memory that has changed since",
    ),
    "a product that another operation takes": (
        f"p:f32[8,8] = dot_general x, x {DOT}\nr:f32[8,8] = exp p",
        "a product or a sort, written in an order of its own, reaches an operation that takes all of it",
    ),
    "an operand of a loop": (
        """
        a:f32[8,8] = exp x
        r:f32[8,8] = loop 0:i32, 4:i32, a, y {body=program b(i:i32[], a:f32[8,8], s:f32[8,8]) {
          t:f32[8,8] = add s, a
          return t
        }, constants=1, step=1, unroll=1}
        """,
        "an operand of a loop is computed in each of its steps",
    ),
    "a result of a scope": (
        """
        r:f32[8,8] = scope x {body=program b(x:f32[8,8], s:ref<vmem, f32[8,8]>) {
          store s, x
          a:f32[8,8] = load s
          return a
        }, allocations=(ref<vmem, f32[8,8]>,)}
        """,
        "a result of a scope is computed from memory that ends with it",
    ),
    "an array that nothing goes through": (
        "a:f32[8,8] = exp x\nb:f32[8,8], c:f32[8,8] = tee a\nr:f32[8,8] = add b, c",
        "an array is kept while a reduction of its rows goes through it, and the next operation is another",
    ),
    "an array that is used while a reduction goes through it": (
        """
        a:f32[8,8] = exp x
        b:f32[8,8], c:f32[8,8] = tee a
        s:f32[8] = reduce_sum b {axes=(1,)}
        t:f32[8,8] = broadcast s {shape=(8, 8), axes=(0,)}
        r:f32[8,8] = div b, t
        """,
        "an array is kept while a reduction of its rows goes through it, and the next operation is another",
    ),
    "an array kept beside the block that it ends in": (
        """
        a:f32[8,8] = exp x
        b:f32[8,8], c:f32[8,8] = tee a
        s:f32[8] = reduce_sum b {axes=(1,)}
        t:f32[8,8] = broadcast s {shape=(8, 8), axes=(0,)}
        r:f32[8,8] = div c, t
        """,
        "an array is kept in memory of its own, though what is computed from it is stored to a block that fits",
    ),
}
KEPT_BY_HAND = (
    "an array that nothing goes through",
    "an array that is used while a reduction goes through it",
    "an array kept beside the block that it ends in",
)
"""What the pass does not write, and does not change where it is."""
INPUTS = {
    "a mask of rows": "o:ref<any, f32[8,8]>, x:f32[8,8], t:bool[8]",
    "a block that a choice leaves": "o:ref<any, f32[8,8]>, x:f32[8,8], y:f32[8,8]",
    "memory that changes": "o:ref<any, f32[4]>, y:f32[4]",
    "a product of masked operands": "x:f32[8,8], y:f32[8,8], n:i32[]",
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_form_refuses_with_its_reason(case: str) -> None:
    body, reason = BROKEN[case]
    program = call(body, INPUTS.get(case, "x:f32[8,8], y:f32[8,8]"))
    found = [form.broken(program) for form in FORMS]
    assert reason in [each[1] for each in found if each is not None]


@pytest.mark.parametrize("case", [case for case in BROKEN if case not in KEPT_BY_HAND])
def test_the_pass_makes_the_form(case: str) -> None:
    program = call(BROKEN[case][0], INPUTS.get(case, "x:f32[8,8], y:f32[8,8]"))
    made = run_passes(program, FUSION, verify_each=True)
    assert [form.broken(made) for form in FORMS] == [None] * len(FORMS)
    assert run_passes(made, FUSION) is made


def test_every_reason_has_a_case() -> None:
    modules = [
        sys.modules[f"palladio.lower.fusion.{name}"] for name in ("form", "bound_zeros", "join_products", "keep_arrays")
    ]
    reasons = {value for each in modules for name, value in vars(each).items() if name.isupper() and type(value) is str}
    assert reasons == {reason for _, reason in BROKEN.values()}


def test_a_chain_of_operations_is_one_loop() -> None:
    assert not any(
        "keep" in line for line in fused(call("a:f32[8,8] = exp x\nb:f32[8,8] = mul a, y\nr:f32[8,8] = neg b"))
    )


def test_a_product_starts_with_what_is_added_to_it() -> None:
    (line,) = fused(call(f"p:f32[8,8] = dot_general x, x {DOT}\nr:f32[8,8] = add p, y"))
    assert line == "r:f32[8,8] = dot_accumulate y_2, x_1, x_1 {contracting=((1,), (0,)), batch=((), ())}"


def test_a_product_says_where_its_masked_operands_are_zero() -> None:
    body, _ = BROKEN["a product of masked operands"]
    lines = fused(call(body, INPUTS["a product of masked operands"]))
    assert [line.split()[2] for line in lines[7:]] == [
        *("convert", "max", "min", "zero_outside", "zero_outside", "dot_general")
    ]
    assert [line.partition(" = ")[2] for line in lines if "zero_outside" in line] == [
        "zero_outside d, 0:i64, j {axis=1}",
        "zero_outside e_5, 0:i64, j {axis=0}",
    ]


MASKED_OUTSIDE = """
    i:i32[8] = iota {shape=(8,), dtype=i32, axis=0}
    m:bool[8] = lt i, n
    b:bool[8,8] = broadcast m {shape=(8, 8), axes=(1,)}
    c:bool[8,8] = broadcast m {shape=(8, 8), axes=(0,)}
    z:f32[8,8] = broadcast 0.0:f32 {shape=(8, 8), axes=()}
    r:f32[8,8] = cond n, b, c, x, y, z {branches=(
      program none(b:bool[8,8], c:bool[8,8], x:f32[8,8], y:f32[8,8], z:f32[8,8]) {
        return z
      },
      program some(b:bool[8,8], c:bool[8,8], x:f32[8,8], y:f32[8,8], z:f32[8,8]) {
        s:f32[8,8] = loop 0:i32, 2:i32, b, c, x, y, z {body=program body(
          j:i32[], b:bool[8,8], c:bool[8,8], x:f32[8,8], y:f32[8,8], s:f32[8,8]) {
          d:f32[8,8] = select b, x, 0.0:f32
          e:f32[8,8] = select c, y, 0.0:f32
          t:f32[8,8] = dot_accumulate s, d, e {contracting=((1,), (0,)), batch=((), ())}
          return t
        }, constants=4, step=1, unroll=0}
        return s
      },)}
    """


def test_a_product_in_a_loop_of_a_branch_knows_masks_from_outside() -> None:
    program = call(MASKED_OUTSIDE, INPUTS["a product of masked operands"])
    after = run_passes(program, FUSION, verify_each=True)
    lines = [line.strip() for line in print_program(after).splitlines()]
    assert [line.split()[2] for line in lines[lines.index("return z") :] if " = " in line][1:] == [
        *("select", "select", "convert", "max", "min", "zero_outside", "zero_outside", "dot_accumulate")
    ]
    x, y = np.ones((2, 8, 8), np.float32)
    x[:, 5:] = np.nan
    np.testing.assert_array_equal(evaluate(after, [x, y, np.int32(5)])[0], np.full((8, 8), 10))


def test_the_evaluator_checks_where_arrays_are_zero() -> None:
    program = parse("program f(x:f32[3], n:i64[]) {\n  r:f32[3] = zero_outside x, 0:i64, n {axis=0}\n  return r\n}")
    ramp = np.array([1, 2, 0], np.float32)
    np.testing.assert_array_equal(evaluate(program, [ramp, np.int64(2)])[0], ramp)
    with pytest.raises(InternalError, match="only 0 to 1 along axis 0 may differ from 0"):
        evaluate(program, [ramp, np.int64(1)])


def test_products_that_add_to_one_another_are_one_sum() -> None:
    body = f"""
        p:f32[8,8] = dot_general x, y {DOT}
        a:f32[8,8] = add x, p
        q:f32[8,8] = dot_general y, y {DOT}
        b:f32[8,8] = add a, q
        s:f32[8,8] = dot_general y, x {DOT}
        r:f32[8,8] = add b, s
        """
    lines = fused(call(body))
    assert lines == [f"r:f32[8,8] = dot_accumulate x_1, x_1, y_2, y_2, y_2, y_2, x_1 {ALONE}"]


@pytest.mark.parametrize(
    "between",
    [
        "q:f32[8,8] = dot_accumulate p, y, y {contracting=((1,), (1,)), batch=((), ())}",  # another orientation
        "z:bf16[8,8] = convert y {dtype=bf16}\nq:f32[8,8] = dot_accumulate p, z, y " + ALONE,
        "q:f32[8,8] = dot_accumulate p, p, y " + ALONE,  # of two uses
        "store o, y\nq:f32[8,8] = dot_accumulate p, y, y " + ALONE,  # memory changes
    ],
)
def test_products_that_differ_are_sums_of_their_own(between: str) -> None:
    body = f"p:f32[8,8] = dot_accumulate x, x, y {ALONE}\n{between}\nr:f32[8,8] = neg q"
    lines = fused(call(body, "o:ref<any, f32[8,8]>, x:f32[8,8], y:f32[8,8]"))
    assert sum("dot_accumulate" in line for line in lines) == 2


def test_products_of_masked_operands_are_sums_of_their_own() -> None:
    body = (
        BROKEN["a product of masked operands"][0].replace("r:", "p:") + f"r:f32[8,8] = dot_accumulate p, d, e {ALONE}"
    )
    lines = fused(call(body, INPUTS["a product of masked operands"]))
    assert sum("dot_" in line for line in lines) == 2


def test_a_product_is_not_moved_past_a_store() -> None:
    body = f"""
        a:f32[8,8] = load o
        p:f32[8,8] = dot_general a, a {DOT}
        store o, y
        r:f32[8,8] = add p, y
    """
    assert [line.split()[2] for line in fused(call(body, "o:ref<any, f32[8,8]>, y:f32[8,8]"))] == [
        "dot_general",
        "keep",
        "add",
    ]


def test_rows_of_the_block_that_they_end_in_are_kept_beside_it() -> None:
    body = """
        a:f32[8,8] = load o
        e:f32[8,8] = exp a
        s:f32[8] = reduce_sum e {axes=(1,)}
        t:f32[8,8] = broadcast s {shape=(8, 8), axes=(0,)}
        d:f32[8,8] = div e, t
        store o, d
    """
    program = call(body, "o:ref<any, f32[8,8]>", outputs="")
    (tee,) = (line for line in fused(program) if " = tee " in line)
    assert tee.endswith(" = tee e")  # without the reference, from which it is still computed


def test_a_product_rounds_its_sums_itself() -> None:
    (line,) = fused(call(f"p:f32[8,8] = dot_general x, y {DOT}\nr:bf16[8,8] = convert p {{dtype=bf16}}"))
    assert " = dot_general " in line
    assert "dtype=bf16" in line


@pytest.mark.parametrize(
    "rest",
    [
        "q:bf16[8,8] = convert p {dtype=bf16}\nr:f32[8,8] = neg p",
        "r:f64[8,8] = convert p {dtype=f64}",
        "r:i32[8,8] = convert p {dtype=i32}",
        "store o, y\nr:bf16[8,8] = convert p {dtype=bf16}",
    ],
    ids=["is used again", "is widened", "becomes an integer", "is used after a store"],
)
def test_a_product_keeps_its_dtype_where_it(rest: str) -> None:
    body = f"a:f32[8,8] = load o\np:f32[8,8] = dot_general a, y {DOT}\n{rest}"
    lines = fused(call(body, "o:ref<any, f32[8,8]>, y:f32[8,8]"))
    assert any("f32[8,8] = dot_general " in line for line in lines)


@pytest.mark.parametrize(
    "body",
    [
        f"c:bf16[8,8] = convert x {{dtype=bf16}}\np:bf16[8,8] = dot_general c, c {DOT.replace('f32', 'bf16')}\n"
        "r:bf16[8,8] = add p, c",
        f"v:f32[8] = reduce_sum x {{axes=(1,)}}\np:f32[8] = dot_general x, v {DOT}\nr:f32[8] = add p, v",
    ],
    ids=["rounded", "a vector"],
)
def test_sums_that_are_rounded_or_of_few_vectors_are_added_to_later(body: str) -> None:
    assert not any("dot_accumulate" in line for line in fused(call(body)))


def test_a_choice_that_leaves_elements_is_a_store_under_its_mask() -> None:
    body, _ = BROKEN["a block that a choice leaves"]
    lines = fused(call(body, INPUTS["a block that a choice leaves"]))
    assert [line.split()[0 if "store" in line else 2] for line in lines] == ["lt", "store_masked"]


@pytest.mark.parametrize(
    ("mask", "stores"),
    [
        ("m:bool[8,8] = broadcast t {shape=(8, 8), axes=(0,)}", "store_rows"),
        ("m:bool[8,8] = broadcast t {shape=(8, 8), axes=(1,)}", "store_masked"),
        ("c:i32[8,8] = iota {shape=(8, 8), dtype=i32, axis=0}\nm:bool[8,8] = lt c, n", "store_rows"),
        ("c:i32[8,8] = iota {shape=(8, 8), dtype=i32, axis=1}\nm:bool[8,8] = lt c, n", "store_masked"),
        (
            "b:bool[8,8] = broadcast t {shape=(8, 8), axes=(0,)}\nc:bool[8,8] = lt x, 0.0:f32\n"
            "m:bool[8,8] = bitwise_and b, c",
            "store_masked",
        ),
    ],
    ids=["each row", "each column", "counted rows", "counted columns", "rows and elements"],
)
def test_a_mask_of_rows_stores_rows(mask: str, stores: str) -> None:
    body = f"{mask}\nstore_masked o, x, m\nr:f32[8,8] = load o"
    program = call(body, "o:ref<any, f32[8,8]>, x:f32[8,8], t:bool[8], n:i32[]")
    made = run_passes(program, FUSION, verify_each=True)
    assert [line.split()[0] for line in fused(program) if line.startswith("store_")] == [stores]
    x, t = np.arange(64, dtype=np.float32).reshape(8, 8) - 30, np.arange(8) % 3 == 1
    inputs = [np.zeros((8, 8), np.float32), x, t, np.int32(5)]
    np.testing.assert_array_equal(evaluate(made, inputs)[0], evaluate(program, inputs)[0])


ROWS_IN_A_BRANCH = """
    m:bool[8,8] = broadcast t {shape=(8, 8), axes=(0,)}
    cond n, o, x, m {branches=(program none(o:ref<any, f32[8,8]>, x:f32[8,8], m:bool[8,8]) {
      return
    }, program some(o:ref<any, f32[8,8]>, x:f32[8,8], m:bool[8,8]) {
      store_masked o, x, m
      return
    },)}
    r:f32[8,8] = load o
"""


def test_a_mask_from_outside_of_a_branch_stores_rows() -> None:
    lines = fused(call(ROWS_IN_A_BRANCH, "o:ref<any, f32[8,8]>, x:f32[8,8], t:bool[8], n:i32[]"))
    assert any(line.startswith("store_rows o, ") for line in lines)


@pytest.mark.parametrize("between", ["store o, y", "store p, y"])
def test_a_block_that_may_change_before_the_choice_is_stored_is_loaded(between: str) -> None:
    body = f"""
        a:f32[8,8] = load o
        m:bool[8,8] = lt y, x
        {between}
        b:f32[8,8] = select m, x, a
        store o, b
        r:f32[8,8] = load o
    """
    lines = fused(call(body, "o:ref<any, f32[8,8]>, p:ref<any, f32[8,8]>, x:f32[8,8], y:f32[8,8]"))
    assert not any("store_masked" in line for line in lines)


@pytest.mark.parametrize(
    "used",
    [
        "r:f32[8,5] = extract b.view(8, 5)[$0, $1]",
        "r:f32[8,3] = extract b.view(8, 3)[$0, $1 + 1]",
        "c:f32[8,3] = extract b.view(8, 3)[$0, $1]\nd:f32[8,3] = extract a.view(8, 3)[$0, $1]\nr:f32[8,3] = add c, d",
        "r:f32[8,8] = neg b",
    ],
    ids=["more than half", "others", "the least too", "all"],
)
def test_all_is_sorted_where_more_than_the_greatest_few_are_used(used: str) -> None:
    body = f"a:f32[8,8] = sort x {{axis=1, num_keys=1, stable=True}}\nb:f32[8,8] = reverse a {{axes=(1,)}}\n{used}"
    assert not any("last=" in line for line in fused(call(body)))


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        ("store o, a", 0),
        ("b:f32[8,8] = neg a\nstore o, b", 1),
        ("store o, a\nb:f32[8,8] = add y, a\nstore o, b", 1),
    ],
    ids=["stored", "of an operation", "used twice"],
)
def test_a_sorted_array_is_kept_unless_it_is_only_stored(rest: str, kept: int) -> None:
    body = f"a:f32[8,8] = sort x {{axis=1, num_keys=1, stable=True}}\n{rest}\nr:f32[8,8] = load o"
    lines = fused(call(body, "o:ref<any, f32[8,8]>, x:f32[8,8], y:f32[8,8]"))
    assert sum("keep" in line for line in lines) == kept


def test_a_store_may_read_what_it_replaces() -> None:
    body = "a:f32[4] = load o\nb:f32[4] = neg a\nstore o, b\nr:f32[4] = load o"
    lines = fused(call(body, "o:ref<any, f32[4]>"))
    assert not any("keep" in line for line in lines)


def test_a_store_in_another_order_keeps_what_it_replaces() -> None:
    body = "a:f32[4,4] = load o\nb:f32[4,4] = transpose a {permutation=(1, 0)}\nstore o, b\nr:f32[4,4] = load o"
    assert sum("keep" in line for line in fused(call(body, "o:ref<any, f32[4,4]>"))) == 1


def test_what_costs_nothing_to_compute_is_not_kept() -> None:
    body = "a:i32[8,8] = iota {shape=(8, 8), dtype=i32, axis=0}\nb:i32[8,8] = mul a, a\nr:i32[8,8] = add b, a"
    assert not any("keep" in line for line in fused(call(body)))


def test_what_costs_nothing_to_compute_is_kept_before_a_store_only() -> None:
    """The form holds after the pass: that it is kept at last does not say that it was to be kept before."""
    body = """
        a:f32[8,8] = load o
        b:f32[8,8] = mul a, a
        s:f32[8] = reduce_sum b {axes=(1,)}
        t:f32[8,8] = broadcast s {shape=(8, 8), axes=(0,)}
        c:f32[8,8] = sub b, t
        store o, c
        r:f32[8] = reduce_sum b {axes=(0,)}
    """
    assert sum("keep" in line for line in fused(call(body, "o:ref<any, f32[8,8]>"))) == 1


def test_rows_are_kept_while_a_reduction_goes_through_them() -> None:
    body = """
        a:f32[8,8] = exp x
        s:f32[8] = reduce_sum a {axes=(1,)}
        t:f32[8,8] = broadcast s {shape=(8, 8), axes=(0,)}
        r:f32[8,8] = div a, t
    """
    assert [line.split()[2] for line in fused(call(body))] == ["exp", "=", "reduce_sum", "broadcast", "div"]
    assert fused(call(body))[1:3] == ["e:f32[8,8], f:f32[8,8] = tee a_3, a", "s:f32[8] = reduce_sum e {axes=(1,)}"]


ROWS = """
    a:f32[8,8] = exp x
    s:f32[8] = reduce_sum a {axes=(1,)}
    t:f32[8,8] = broadcast s {shape=(8, 8), axes=(0,)}
"""


@pytest.mark.parametrize(
    "rest",
    [
        "b:f32[8,8] = div a, t\nc:f32[8,8] = load o\nstore o, b\nr:f32[8,8] = add c, t",
        "b:f32[8,8] = div a, t\nr:f32[8,8] = add b, a",
        "b:f32[8,8] = transpose a {permutation=(1, 0)}\nr:f32[8,8] = div b, t",
        "b:bf16[8,8] = convert a {dtype=bf16}\nr:f32[8,8] = convert b {dtype=f32}",
        "b:f32[8,8] = div a, t\nstore o.view(8, 8)[$1, $0], b\nr:f32[8,8] = load o",
    ],
    ids=[
        "is read before",
        "is used twice",
        "ends in another order",
        "ends as another dtype",
        "is stored through a view",
    ],
)
def test_rows_are_kept_in_memory_of_their_own_where_the_block(rest: str) -> None:
    lines = fused(call(f"{dedent(ROWS).strip()}\n{rest}", "o:ref<any, f32[8,8]>, x:f32[8,8]"))
    (kept,) = [line for line in lines if " = tee " in line]
    assert "," not in kept.partition(" = ")[2]
