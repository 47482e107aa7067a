"""Products of the tensor cores that a further schedule finds again rather than multiply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import palladio as pl
import palladio.gpu as plgpu
from palladio.machine.run import products
from palladio.machine.run.products import MOST_WIDENED, Products, Sum, Widened

A, B, C, D = (np.random.default_rng(n).normal(size=(8, 8)).astype(np.float16) for n in range(4))


def summed(known: Products, *pairs: tuple[Any, Any], start: float = 0) -> Any:
    """The value of an accumulator after these products."""
    array = np.full((8, 8), start, np.float32)
    total = Sum(array, known)
    for lhs, rhs in pairs:
        total.add(lhs, rhs)
    total.carry_out()
    return array


def wanted(*pairs: tuple[Any, Any], start: float = 0) -> Any:
    """The same in float64."""
    return start + sum(lhs.astype(np.float64) @ rhs.astype(np.float64) for lhs, rhs in pairs)


def near(found: Any, right: Any) -> bool:
    """True if the relative error of the norm is that of float32."""
    return bool(np.linalg.norm(found - right) < 1e-6 * np.linalg.norm(right))


def refused(*_: Any) -> Any:
    raise AssertionError("it was multiplied")


def test_the_same_products_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Products()
    pairs = [(A, B), (C, D), (A, D), (B, C), (D, B)]  # more than are kept at once
    first = summed(known, *pairs)
    assert near(first, wanted(*pairs))
    monkeypatch.setattr(products, "multiplied", refused)
    assert summed(known, *((lhs.copy(), rhs.copy()) for lhs, rhs in pairs)).tobytes() == first.tobytes()


@pytest.mark.parametrize(
    ("pairs", "start"),
    [
        ([(C, D), (A, B)], 0),
        ([(A, B)], 0),
        ([(A, B), (C, D)], 1),
        ([(A, B), (C, D.T)], 0),
        ([(B, A), (C, D)], 0),
    ],
    ids=["another order", "fewer", "another beginning", "transposed", "exchanged"],
)
def test_other_products_are_multiplied(pairs: Any, start: float) -> None:
    known = Products()
    summed(known, (A, B), (C, D))
    assert near(summed(known, *pairs, start=start), wanted(*pairs, start=start))


def test_operands_count_as_they_were_when_the_product_was_made() -> None:
    lhs, array = A.copy(), np.zeros((8, 8), np.float32)
    total = Sum(array, Products())
    total.add(lhs, B)
    lhs[...] = 0
    total.carry_out()
    assert near(array, wanted((A, B)))


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MOST_KEPT", 2 * 8 * 8 * 4 + 1)
    known = Products()
    for rhs in (A, B, C, D):
        assert near(summed(known, (A, rhs)), wanted((A, rhs)))
    monkeypatch.setattr(products, "multiplied", refused)
    summed(known, (A, A)), summed(known, (A, B))
    with pytest.raises(AssertionError, match="it was multiplied"):
        summed(known, (A, C))


def test_every_schedule_has_the_result_of_the_first() -> None:
    """Two products, of which the second reads what the kernel stores between them, with a load after each."""
    x = np.random.default_rng(9).normal(size=(64, 64)).astype(np.float16)
    found: list[Any] = []

    def body(x_gmem: Any, out_gmem: Any, a: Any, arrived: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, a, arrived)
        plgpu.barrier_wait(arrived)

        def multiply(acc: Any) -> None:
            plgpu.wgmma(acc, a, a)
            plgpu.wgmma_wait(0)
            a[...] = acc[...].astype(np.float16)
            plgpu.commit_smem()
            plgpu.wgmma(acc, a, a)
            plgpu.wgmma_wait(0)
            out_gmem[...] = acc[...]

        pl.run_scoped(multiply, plgpu.ACC((64, 64), np.float32))

    out = pl.ShapeDtypeStruct((64, 64), np.float32)
    kernel = plgpu.kernel(body, out, scratch_types=[plgpu.SMEM((64, 64), np.float16), plgpu.Barrier()])
    assert pl.check(lambda: found.append(kernel(x)), schedules=4).ok
    square = x.astype(np.float64) @ x.astype(np.float64)
    again = square.astype(np.float32).astype(np.float16).astype(np.float64)
    assert np.linalg.norm(found[0] - (square + again @ again)) < 1e-3 * np.linalg.norm(found[0])
    assert len({each.tobytes() for each in found}) == 1


def test_an_operand_is_widened_once_for_the_same_bytes() -> None:
    widened = Widened()
    first = widened.of(A)
    assert first.dtype == np.float32 and np.array_equal(first, A.astype(np.float32))
    assert widened.of(A.copy()) is first
    assert np.array_equal(widened.of(A.reshape(4, 16)), A.astype(np.float32).reshape(4, 16))


def test_operands_that_begin_alike_are_told_apart() -> None:
    widened, other = Widened(), np.vstack([A[:-1], B[-1:]])
    for each in (A, other, A, other):
        assert np.array_equal(widened.of(each), each.astype(np.float32))


@pytest.mark.parametrize("operand", [A.astype(np.float32), A.T, A[0]], ids=["float32", "transposed", "a row"])
def test_other_operands_stay_as_they_are(operand: Any) -> None:
    assert Widened().of(operand) is operand


def test_the_operands_that_are_kept_are_bounded() -> None:
    widened = Widened()
    operands = [np.full((512, 512), n, np.float16) for n in range(2 + MOST_WIDENED // (512 * 512 * 6))]
    assert widened.of(operands[0]) is widened.of(operands[0])
    for each in operands:
        assert np.array_equal(widened.of(each), each.astype(np.float32))
    assert widened.of(operands[-1]) is not widened.of(operands[-1])
