"""Floor 7: the lowered forms of the IR, shared by every executor that runs kernels.

A form lists what is legal in it, with the reasons; its programs print, read back, and still run on the evaluator.
`LOWERINGS` are the passes that produce the forms, in the order in which an executor runs them.
"""

from __future__ import annotations

from palladio.lower.fold_ranges import fold_ranges
from palladio.lower.fusion import bound_zeros, fuse, join_products, keep_arrays
from palladio.lower.grids import initialize, schedule
from palladio.lower.place import place
from palladio.lower.prove_inside import prove_inside
from palladio.lower.slice_indices import slice_indices
from palladio.lower.split_roles import split_roles
from palladio.lower.view import view
from palladio.passes.pipeline import Pass

LOWERINGS: tuple[Pass, ...] = (
    fold_ranges,
    slice_indices,
    place,
    prove_inside,
    schedule,
    split_roles,
    view,
    fuse,
    bound_zeros,
    join_products,
    keep_arrays,
    initialize,
)

__all__ = [
    "LOWERINGS",
    "bound_zeros",
    "fold_ranges",
    "fuse",
    "initialize",
    "join_products",
    "keep_arrays",
    "place",
    "prove_inside",
    "schedule",
    "slice_indices",
    "split_roles",
    "view",
]
