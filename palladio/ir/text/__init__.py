"""The text form of programs: `print_program` and `parse_program`, each the inverse of the other.

    program add(x:ref<any, f32[8]>, o:ref<any, f32[8]>) {
      a:f32[8] = load x[:]
      b:f32[8] = add a, a
      store o[:], b
      return
    }

An operation prints as `outputs = name inputs {params}`. One that reaches into a reference prints its transforms
after the reference, with the index operands where they belong: `load x[i, 0:8].reshape(2, 4)`. A slice of static
start is `start:stop`, or `start:+size:stride`; one of dynamic start is `i:+size`. Parameters are Python literals,
types, dtypes, programs, and records `Name(field=value)`.
"""

from palladio.ir.core import Program
from palladio.ir.text.parse import parse_program
from palladio.ir.text.write import print_program

Program.text = print_program

__all__ = ["parse_program", "print_program"]
