"""Arithmetic, element by element. Integers wrap around; integer division by zero gives -1 (all bits set), its remainder the dividend."""

from __future__ import annotations

import numpy as np

from palladio.ops.elementwise import elementwise, is_number

add = elementwise("add", "x + y", np.add, 2, is_number, commutative=True)
sub = elementwise("sub", "x - y", np.subtract, 2, is_number)
mul = elementwise("mul", "x * y", np.multiply, 2, is_number, commutative=True)
