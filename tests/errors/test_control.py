"""Control flow: functions that return other things than they should, and what runs where."""

from __future__ import annotations

from typing import Any

import numpy as np

import palladio as pl
import palladio.numpy as jnp
import palladio.tpu as pltpu
from palladio import lax
from tests.errors.shown import OUT, X, shows

# Branches.


def test_branches_of_two_shapes() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: x_ref[0, 0])

    with shows(
        TypeError,
        """
        the branches of cond must return the same types
          got:      f32[16] from true_fun, f32[] from false_fun
          test_control.py:N, in kernel
            o_ref[...] = lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: x_ref[0, 0])
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_branches_of_two_dtypes() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: x_ref[0].astype(jnp.int32))

    with shows(
        TypeError,
        """
        the branches of cond must return the same types
          got:      f32[16] from true_fun, i32[16] from false_fun
          test_control.py:N, in kernel
            o_ref[0] = lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: x_ref[0].astype(jnp.int32))
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_branches_of_two_structures() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.cond(x_ref[0, 0] > 0, lambda: (x_ref[0], x_ref[1]), lambda: x_ref[0])

    with shows(
        TypeError,
        """
        the branches of cond must return one structure
          got:      (*, *) from true_fun, one value from false_fun
          test_control.py:N, in kernel
            o_ref[0] = lax.cond(x_ref[0, 0] > 0, lambda: (x_ref[0], x_ref[1]), lambda: x_ref[0])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_branch_that_returns_nothing() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: None)

    with shows(
        TypeError,
        """
        the branches of cond must return one structure
          got:      one value from true_fun, nothing from false_fun
          test_control.py:N, in kernel
            o_ref[0] = lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: None)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_branch_that_returns_a_string() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        lax.cond(x_ref[0, 0] > 0, lambda: "yes", lambda: "no")

    with shows(
        TypeError,
        """
        a result: neither an array nor a scalar
          got:      str: 'no'
          test_control.py:N, in kernel
            lax.cond(x_ref[0, 0] > 0, lambda: "yes", lambda: "no")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_branch_that_takes_other_parameters() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: x_ref[1], x_ref[0])

    with shows(
        TypeError,
        """
        the function that cond runs takes other parameters than it is called with
          expected: 1 argument
          got:      <lambda>()
          test_control.py:N, in <lambda>
            o_ref[0] = lax.cond(x_ref[0, 0] > 0, lambda: x_ref[0], lambda: x_ref[1], x_ref[0])
                                                                           ^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_branch_that_is_no_function() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.cond(x_ref[0, 0] > 0, x_ref[0], x_ref[1])

    with shows(
        TypeError,
        """
        what cond runs is a function
          got:      traced f32[16]
          test_control.py:N, in kernel
            o_ref[0] = lax.cond(x_ref[0, 0] > 0, x_ref[0], x_ref[1])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_predicate_of_several_elements() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.cond(x_ref[0] > 0, lambda: x_ref[0], lambda: x_ref[1])

    with shows(
        TypeError,
        """
        the predicate of cond is a scalar
          got:      bool[16]
          test_control.py:N, in kernel
            o_ref[0] = lax.cond(x_ref[0] > 0, lambda: x_ref[0], lambda: x_ref[1])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_when_with_a_predicate_of_several_elements() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(x_ref[0] > 0)
        def write() -> None:
            o_ref[0] = x_ref[0]

    with shows(
        TypeError,
        """
        the predicate of when is a scalar
          got:      bool[16]
          test_control.py:N, in kernel
            @pl.when(x_ref[0] > 0)
             ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_function_under_when_that_returns_a_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(x_ref[0, 0] > 0)
        def read() -> Any:
            return x_ref[0]

    with shows(
        TypeError,
        """
        the function under when must return nothing; it writes to references
          got:      traced f32[16]
          test_control.py:N, in kernel
            @pl.when(x_ref[0, 0] > 0)
             ^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_function_under_when_that_takes_parameters() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(x_ref[0, 0] > 0)
        def write(value: Any) -> None:
            o_ref[0] = value

    with shows(
        TypeError,
        """
        the function under when takes other parameters than it is called with
          expected: no arguments
          got:      write(value)
          test_control.py:N, in write
            def write(value: Any) -> None:
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_switch_by_a_float() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.switch(x_ref[0, 0], [lambda: x_ref[0], lambda: x_ref[1]])

    with shows(
        TypeError,
        """
        the index of switch is a scalar integer
          got:      f32[]
          test_control.py:N, in kernel
            o_ref[0] = lax.switch(x_ref[0, 0], [lambda: x_ref[0], lambda: x_ref[1]])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_switch_without_branches() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.switch(pl.program_id(0), [])

    with shows(
        ValueError,
        """
        branches: switch needs at least one branch
          test_control.py:N, in kernel
            o_ref[0] = lax.switch(pl.program_id(0), [])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


def test_branches_of_a_switch_of_three_shapes() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.switch(pl.program_id(0), [lambda: x_ref[0], lambda: x_ref[0, 0], lambda: x_ref[...]])

    with shows(
        TypeError,
        """
        the branches of switch must return the same types
          got:      f32[16] from branch 0, f32[] from branch 1, f32[8,16] from branch 2
          test_control.py:N, in kernel
            o_ref[0] = lax.switch(pl.program_id(0), [lambda: x_ref[0], lambda: x_ref[0, 0], lambda: x_ref[...]])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


def test_branches_of_a_switch_of_two_structures() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.switch(pl.program_id(0), [lambda: x_ref[0], lambda: (x_ref[0],)])

    with shows(
        TypeError,
        """
        the branches of switch must return one structure
          got:      one value from branch 0, (*,) from branch 1
          test_control.py:N, in kernel
            o_ref[0] = lax.switch(pl.program_id(0), [lambda: x_ref[0], lambda: (x_ref[0],)])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


# Loops.


def test_a_loop_body_of_another_shape() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.fori_loop(0, 3, lambda i, total: total[0], x_ref[0])

    with shows(
        TypeError,
        """
        the body of fori_loop must return the types of its carry
          expected: f32[16]
          got:      f32[]
          hint:     convert the result, or start from a carry of that dtype
          test_control.py:N, in kernel
            o_ref[0] = lax.fori_loop(0, 3, lambda i, total: total[0], x_ref[0])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_loop_body_of_another_dtype() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.fori_loop(0, 3, lambda i, total: total + x_ref[i], jnp.zeros(16, jnp.int32))

    with shows(
        TypeError,
        """
        the body of fori_loop must return the types of its carry
          expected: i32[16]
          got:      f32[16]
          hint:     convert the result, or start from a carry of that dtype
          test_control.py:N, in kernel
            o_ref[0] = lax.fori_loop(0, 3, lambda i, total: total + x_ref[i], jnp.zeros(16, jnp.int32))
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_loop_body_of_another_structure() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.fori_loop(0, 3, lambda i, total: (total, i), x_ref[0])

    with shows(
        TypeError,
        """
        the body of fori_loop must return a carry of the structure that it takes
          expected: one value
          got:      (*, *)
          test_control.py:N, in kernel
            o_ref[0] = lax.fori_loop(0, 3, lambda i, total: (total, i), x_ref[0])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_loop_body_that_returns_nothing() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def body(i: Any, total: Any) -> None:
            o_ref[i] = total

        lax.fori_loop(0, 3, body, x_ref[0])

    with shows(
        TypeError,
        """
        the body of fori_loop must return a carry of the structure that it takes
          expected: one value
          got:      nothing
          test_control.py:N, in kernel
            lax.fori_loop(0, 3, body, x_ref[0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_loop_body_with_another_number_of_parameters() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def body(total: Any) -> Any:
            return total

        o_ref[0] = lax.fori_loop(0, 3, body, x_ref[0])

    with shows(
        TypeError,
        """
        the function that fori_loop runs takes other parameters than it is called with
          expected: 2 arguments
          got:      body(total)
          test_control.py:N, in body
            def body(total: Any) -> Any:
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_loop_bound_that_is_a_float() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.fori_loop(0, x_ref[0, 0], lambda i, total: total, x_ref[0])

    with shows(
        TypeError,
        """
        the bounds of fori_loop are scalar integers
          got:      i32[] and f32[]
          test_control.py:N, in kernel
            o_ref[0] = lax.fori_loop(0, x_ref[0, 0], lambda i, total: total, x_ref[0])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_reference_as_a_carry() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        lax.fori_loop(0, 3, lambda i, ref: ref, x_ref)

    with shows(
        TypeError,
        """
        a reference is not a value
          got:      ref<any, f32[8,16]>
          hint:     read it first: ref[...]
          test_control.py:N, in kernel
            lax.fori_loop(0, 3, lambda i, ref: ref, x_ref)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_negative_unrolling() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.fori_loop(0, 3, lambda i, total: total, x_ref[0], unroll=-1)

    with shows(
        ValueError,
        """
        unroll: a number of iterations, or True for all
          got:      -1
          test_control.py:N, in kernel
            o_ref[0] = lax.fori_loop(0, 3, lambda i, total: total, x_ref[0], unroll=-1)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_loop_step_of_zero() -> None:
    with shows(
        ValueError,
        """
        step: the step of a loop is at least 1
          got:      0
          test_control.py:N, in test_a_loop_step_of_zero
            pl.loop(0, 3, step=0)
            ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.loop(0, 3, step=0)


def test_a_loop_step_of_a_half() -> None:
    with shows(
        TypeError,
        """
        step: the step of a loop is a static integer
          got:      0.5
          test_control.py:N, in test_a_loop_step_of_a_half
            pl.loop(0, 3, step=0.5)
            ^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.loop(0, 3, step=0.5)


def test_a_loop_without_a_carry_that_returns_a_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.loop(0, 3)
        def body(i: Any) -> Any:
            return x_ref[i]

    with shows(
        TypeError,
        """
        a loop body without carry returns nothing
          got:      traced f32[16]
          hint:     pass init_carry=, or return nothing
          test_control.py:N, in kernel
            @pl.loop(0, 3)
             ^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_loop_whose_body_takes_no_index() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.loop(0, 3)
        def body() -> None:
            o_ref[...] = x_ref[...]

    with shows(
        TypeError,
        """
        the loop body takes other parameters than it is called with
          expected: 1 argument: the index
          got:      body()
          test_control.py:N, in body
            def body() -> None:
            ^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_while_condition_of_several_elements() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.while_loop(lambda x: x < 3, lambda x: x + 1, x_ref[0])

    with shows(
        TypeError,
        """
        the loop condition returns one scalar bool
          got:      bool[16]
          test_control.py:N, in kernel
            o_ref[0] = lax.while_loop(lambda x: x < 3, lambda x: x + 1, x_ref[0])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_while_condition_that_returns_nothing() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0] = lax.while_loop(lambda x: None, lambda x: x + 1, x_ref[0, 0])

    with shows(
        TypeError,
        """
        the loop condition returns one scalar bool
          got:      nothing
          test_control.py:N, in kernel
            o_ref[0, 0] = lax.while_loop(lambda x: None, lambda x: x + 1, x_ref[0, 0])
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_while_condition_that_writes() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def below(x: Any) -> Any:
            o_ref[0, 0] = x
            return x < 3

        lax.while_loop(below, lambda x: x + 1, x_ref[0, 0])

    with shows(
        TypeError,
        """
        a loop condition may read a reference but not write it
          test_control.py:N, in kernel
            lax.while_loop(below, lambda x: x + 1, x_ref[0, 0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_while_body_of_another_type() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = lax.while_loop(lambda x: x[0] < 3, lambda x: x[0], x_ref[0])

    with shows(
        TypeError,
        """
        the body of while_loop must return the types of its carry
          expected: f32[16]
          got:      f32[]
          hint:     convert the result, or start from a carry of that dtype
          test_control.py:N, in kernel
            o_ref[0] = lax.while_loop(lambda x: x[0] < 3, lambda x: x[0], x_ref[0])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


# Scopes.


def test_a_scope_of_no_reference() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.run_scoped(lambda ref: None, (8, 128))

    with shows(
        TypeError,
        """
        a scope allocates memory references
          expected: such as pltpu.VMEM(shape, dtype)
          got:      8
          test_control.py:N, in kernel
            pl.run_scoped(lambda ref: None, (8, 128))
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_scope_whose_function_takes_other_parameters() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        def body(total_ref: Any) -> None: ...

        pl.run_scoped(body, pltpu.VMEM((8,), jnp.float32), sums=pltpu.VMEM((8,), jnp.float32))

    with shows(
        TypeError,
        """
        the function that run_scoped runs takes other parameters than it is called with
          expected: 1 argument, and by keyword sums
          got:      body(total_ref)
          test_control.py:N, in body
            def body(total_ref: Any) -> None: ...
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_state_function_that_returns_a_value() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[0] = pl.run_state(lambda ref: ref[...])(x_ref[0])

    with shows(
        TypeError,
        """
        the function under run_state must return nothing; it writes to its references
          got:      traced f32[16]
          test_control.py:N, in kernel
            o_ref[0] = pl.run_state(lambda ref: ref[...])(x_ref[0])
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


# Where a kernel runs.


def test_a_program_id_of_an_axis_that_there_is_not() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.program_id(1)] = x_ref[0]

    with shows(
        IndexError,
        """
        axis: the grid has no such axis for program_id
          expected: 0 <= axis < 1
          got:      1
          test_control.py:N, in kernel
            o_ref[pl.program_id(1)] = x_ref[0]
                  ^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(2,))(X)


def test_a_program_id_of_a_name() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.program_id("i")] = x_ref[0]  # type: ignore[arg-type]

    with shows(
        TypeError,
        """
        axis: program_id takes a static axis
          got:      'i'
          hint:     axis_index and axis_size take the name of an axis
          test_control.py:N, in kernel
            o_ref[pl.program_id("i")] = x_ref[0]  # type: ignore[arg-type]
                  ^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(("i", 2),))(X)


def test_a_program_id_outside_of_a_kernel() -> None:
    with shows(
        ValueError,
        """
        program_id has a meaning only inside a kernel
          test_control.py:N, in test_a_program_id_outside_of_a_kernel
            pl.program_id(0)
            ^^^^^^^^^^^^^^^^
        """,
    ):
        pl.program_id(0)


def test_an_axis_name_that_there_is_not() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.axis_index("rows")] = x_ref[0]

    with shows(
        ValueError,
        """
        no axis has this name here
          expected: i, j
          got:      'rows'
          test_control.py:N, in kernel
            o_ref[pl.axis_index("rows")] = x_ref[0]
                  ^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(("i", 2), ("j", 2)))(X)


# Printing, checks and promises.


def test_a_print_with_a_field_too_many() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print("{} {}", x_ref[0, 0])

    with shows(
        ValueError,
        """
        fmt: the format has one {} for each value, in order
          expected: 1 field
          got:      '{} {}'
          test_control.py:N, in kernel
            pl.debug_print("{} {}", x_ref[0, 0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_print_whose_format_does_not_parse() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print("{", x_ref[0, 0])

    with shows(
        ValueError,
        """
        fmt: the format does not parse
          expected: Single '{' encountered in format string
          got:      '{'
          test_control.py:N, in kernel
            pl.debug_print("{", x_ref[0, 0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_print_whose_format_is_none() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print(x_ref[0, 0])

    with shows(
        TypeError,
        """
        fmt: the format is a string
          got:      traced f32[]
          test_control.py:N, in kernel
            pl.debug_print(x_ref[0, 0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_print_of_an_array_in_a_format_for_scalars() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_print("{:.3f}", x_ref[0])

    with shows(
        ValueError,
        """
        fmt: a value cannot be printed in this format
          got:      {:.3f} for f32[16]
          hint:     an array takes {} alone
          test_control.py:N, in kernel
            pl.debug_print("{:.3f}", x_ref[0])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_check_of_several_elements() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_check(x_ref[...] > 0, "all are above zero")

    with shows(
        TypeError,
        """
        condition: the condition of a check is a scalar bool
          got:      bool[8,16]
          test_control.py:N, in kernel
            pl.debug_check(x_ref[...] > 0, "all are above zero")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_check_that_fails() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.debug_check(x_ref[0, 0] > 1, "the first is above one")

    with (
        pl.enable_debug_checks(),
        shows(
            AssertionError,
            """
        debug_check failed: the first is above one
          test_control.py:N, in kernel
            pl.debug_check(x_ref[0, 0] > 1, "the first is above one")
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
        ),
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_promise_about_a_float() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.multiple_of(x_ref[0, 0], 4)

    with shows(
        TypeError,
        """
        multiple_of takes integers
          got:      f32[]
          test_control.py:N, in kernel
            pl.multiple_of(x_ref[0, 0], 4)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT)(X)


def test_a_promise_of_multiples_of_zero() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        pl.multiple_of(pl.program_id(0), 0)

    with shows(
        ValueError,
        """
        values: multiple_of takes positive factors
          got:      0
          test_control.py:N, in kernel
            pl.multiple_of(pl.program_id(0), 0)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


def test_a_promise_that_a_static_integer_breaks() -> None:
    with shows(
        ValueError,
        """
        the promise of multiple_of is broken
          expected: a multiple of 4
          got:      6
          test_control.py:N, in test_a_promise_that_a_static_integer_breaks
            pl.multiple_of(6, 4)
            ^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.multiple_of(6, 4)


def test_a_promise_that_is_broken_as_the_kernel_runs() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        start = pl.multiple_of(pl.program_id(0) + 2, 4)
        o_ref[start] = x_ref[start]

    with shows(
        ValueError,
        """
        the promise of multiple_of is broken
          expected: a multiple of 4
          got:      2
          test_control.py:N, in kernel
            start = pl.multiple_of(pl.program_id(0) + 2, 4)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        """,
    ):
        pl.pallas_call(kernel, OUT, grid=(1,))(X)


def test_a_jit_function_that_returns_a_string() -> None:
    @pl.jit
    def step(x: Any) -> Any:
        return {"x": x, "name": "step"}

    with shows(
        TypeError,
        """
        a result: neither an array nor a scalar
          got:      str: 'step'
          test_control.py:N, in test_a_jit_function_that_returns_a_string
            step(X)
            ^^^^^^^
        """,
    ):
        step(X)


def test_a_static_value_that_is_traced() -> None:
    @pl.jit
    def step(x: Any, n: Any) -> Any:
        return x.reshape(n, -1)

    with shows(
        TypeError,
        """
        shape: a shape is static integers
          got:      (traced i32[], -1)
          test_control.py:N, in step
            return x.reshape(n, -1)
                   ^^^^^^^^^^^^^^^^
        """,
    ):
        step(X, np.int32(4))
