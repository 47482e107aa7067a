"""Views: what a stack of transforms becomes, against the definition of its transforms."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.tpu as pltpu
from palladio.base.errors import InternalError
from palladio.ir.text import print_program
from palladio.lower import fold_ranges, prove_inside, view
from palladio.lower.forms import VIEWED
from palladio.lower.views import views
from palladio.ops import parse
from palladio.ops.references import access
from palladio.passes import run_passes
from palladio.passes.pipeline import ANY, Pass
from palladio.trace.trace import stage
from palladio.trace.values import wrap
from palladio.types import dtypes
from palladio.types.transforms import Transform
from palladio.types.types import ArrayType
from palladio.types.views import whole
from tests.machine.stacks import DTYPES, Stack
from tests.passes.ir import check, check_unchanged

Array = Any
SHAPES = [(), (7,), (6, 8), (4, 6, 8), (1, 12, 4), (0, 3)]
X = ArrayType((8, 16), np.dtype(np.float32))


def bytes_of(type: ArrayType, seed: int) -> Array:
    """An array of any bits."""
    drawn = np.random.default_rng(seed).integers(0, 256, (type.size, type.dtype.itemsize)).astype(np.uint8)
    return drawn.view(type.dtype).reshape(type.shape)


def stacks(shape: tuple[int, ...]) -> list[Stack]:
    """Random stacks of transforms over arrays of this shape, whose indices may be outside."""
    found = []
    for seed in range(60):
        chance = random.Random(seed)
        found.append(Stack(chance, ArrayType(shape, chance.choice(DTYPES)), chance.randrange(6)))
    return found


def of(stack: Stack) -> tuple[Transform, ...]:
    return views(stack.root, stack.transforms, [np.shape(index) for index in stack.indices])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_views_read_what_their_transforms_do(shape: tuple[int, ...]) -> None:
    for seed, stack in enumerate(stacks(shape)):
        array = bytes_of(stack.root, seed)
        expected = access.read(array, stack.transforms, stack.indices)
        found = access.read(array, of(stack), stack.indices)
        np.testing.assert_array_equal(found, expected, str(stack.transforms), strict=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_views_write_what_their_transforms_do(shape: tuple[int, ...]) -> None:
    for seed, stack in enumerate(stacks(shape)):
        expected = bytes_of(stack.root, seed)
        found, value = expected.copy(), bytes_of(stack.selected, seed + 1)
        access.write(expected, stack.transforms, stack.indices, value)
        access.write(found, of(stack), stack.indices, value)
        np.testing.assert_array_equal(found, expected, str(stack.transforms))


def test_views_of_views_are_those_of_all_their_transforms() -> None:
    for stack in stacks((6, 8)):
        shapes = [np.shape(index) for index in stack.indices]
        assert views(stack.root, of(stack), shapes) == of(stack)


def test_no_transform_that_selects_everything_is_left() -> None:
    program = "program f(x:f32[2,4]) {{\n  a:f32[2,4] = extract {}\n  return a\n}}"
    everything = "x[:, :].reshape(8).reshape(2, 4).transpose(1, 0).transpose(1, 0).bitcast(f32)"
    check(view, program.format(everything), program.format("x"))


def test_a_view_of_part_of_the_memory_is_numpys() -> None:
    array = np.arange(128, dtype=np.float32).reshape(8, 16)
    stack = parse("program f(x:f32[8,16]) { a:f32[3,2,4] = extract x[2:5, 8:16].reshape(3, 2, 4) return a }").eqns[0]
    found = access.read(array, views(X, stack.transforms, []), [])
    assert np.shares_memory(found, array)


def test_an_operand_that_stands_twice_in_a_view_is_one() -> None:
    check(
        view,
        """
        program f(x:f32[8,16], i:i32[]) {
          a:f32[] = extract x[i, i]
          b:f32[] = extract x[i:+4, :][i, 3]
          return a, b
        }
        """,
        """
        program f(x:f32[8,16], i:i32[]) {
          a:f32[] = extract x.view()[i < 8, i < 16]
          b:f32[] = extract x.view()[2*i < 8, 3; i < 4]
          return a, b
        }
        """,
    )


def test_what_is_proven_inside_has_no_guard() -> None:
    text = """
    program f(x:ref<any, f32[8]>, o:ref<any, f32[4]>) {
      loop 0:i32, 5:i32, x, o {body=program step(i:i32[], x:ref<any, f32[8]>, o:ref<any, f32[4]>) {
        a:f32[4] = load x[i:+4]
        store o, a
        return
      }, constants=2, step=1, unroll=1}
      return
    }
    """
    proven = run_passes(parse(text), [fold_ranges, prove_inside])
    check(view, print_program(proven), text.replace("x[i:+4]", "x.view(4)[i + $0]"))
    check(view, text, text.replace("x[i:+4]", "x.view(4)[i + $0 < 8]"))


def test_the_block_of_a_peer_and_the_slot_of_a_barrier_stay() -> None:
    text = """
    program f(x:ref<smem, f32[8]>, b:ref<barrier, i32[4]>, i:i32[]) {
      a:f32[2] = load x.peer(c=i)[2:4]
      barrier_wait b[i]
      barrier_wait b[i!]
      return
    }
    """
    check(view, text, text.replace("[2:4]", ".view(2)[$0 + 2]"))


def test_index_maps_read_scalars_through_views() -> None:
    def copy(blocks: Any, x: Any, out: Any) -> None:
        out[...] = x[...]

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(2,),
        in_specs=[pl.BlockSpec((4,), lambda i, blocks: (blocks[i],))],
        out_specs=pl.BlockSpec((4,), lambda i, blocks: (i,)),
    )
    call = pl.pallas_call(copy, pl.ShapeDtypeStruct((8,), np.float32), grid_spec=spec)
    types = [ArrayType((2,), dtypes.INT32), ArrayType((8,), dtypes.FLOAT32)]
    program = stage(lambda *arrays: (call(*arrays),), types, wrap, name="call").program
    found = run_passes(program, [view], verify_each=True).eqns[0].grid.inputs[0].index_map
    assert "load b.view()[a < 2]" in print_program(found)


def test_a_program_of_views_is_left_alone() -> None:
    check_unchanged(view, "program f(x:f32[8], i:i32[]) {\n  a:f32[2] = extract x.view(2)[i + 2*$0 < 8]\n  return a\n}")


def test_the_form_names_the_access_that_has_other_transforms() -> None:
    program = parse("program f(x:f32[8]) {\n  a:f32[2] = extract x[2:4]\n  return a\n}")
    promise = Pass("nothing", ANY, VIEWED, lambda program: program, "")
    with pytest.raises(InternalError, match="extract reaches its elements by transforms that are not views"):
        run_passes(program, [promise], verify_each=True)


def test_a_coordinate_is_a_sum_in_any_arithmetic() -> None:
    class Text:
        def add(self, x: str, y: str) -> str:
            return f"({x} + {y})"

        def mul(self, x: str, y: int) -> str:
            return f"{y} * {x}"

    program = parse(
        "program f(x:f32[64], i:i32[], j:i32[]) {\n  a:f32[3] = extract x.reshape(16, 4)[i, j:+3]\n  return a\n}"
    )
    (found,) = views(ArrayType((64,), dtypes.FLOAT32), program.eqns[0].transforms, [(), ()])
    (row,) = found.coordinates
    assert row.first(Text(), str(row.start), "ij".__getitem__) == "((0 + 4 * i) + 1 * j)"
    assert row.reach(found.sizes) == 2


def test_a_reshape_joins_axes_that_go_on_in_each_other() -> None:
    cut = whole(ArrayType((4, 24), dtypes.FLOAT32)).reshaped((2, 2, 4, 6))
    assert cut is not None
    assert cut.reshaped((4, 8, 3)) == whole(cut.base).reshaped((4, 8, 3))
    assert cut.reshaped((2, 8, 6)) is None
    assert [row.strides for row in cut.coordinates] == [(2, 1, 0, 0), (0, 0, 6, 1)]
