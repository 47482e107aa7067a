"""A later product into the caller's array goes to the kernel without checks, where that array can be used as it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import palladio as pl
from palladio.library import experts, gmm, grouped_matmul, matmul, moe_mlp, tilings
from tests.library.references import normal
from tests.pairs import every_pair

M, K, N = 6, 24, 40
X, MATRICES = normal(0, M, K), normal(1, 8, K, N)
SIZES = np.array([2, 0, 1, 0, 0, 3, 0, 0], np.int32)
DENSE, GROUPED = (X, MATRICES[0]), (X, MATRICES, SIZES)
MATMUL: Any = sys.modules["palladio.library.matmul"]

pytestmark = pytest.mark.one_executor


@pytest.fixture(autouse=True, scope="module")
def nothing_kept() -> None:
    """The tests share what they keep: each looks only for whether its own later calls are looked up after checks."""
    MATMUL._KEPT.clear()
    grouped_matmul._GMM.clear()


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    with pl.executor("cpu"):
        yield


def product_of(given: tuple[Any, ...]) -> Callable[..., Any]:
    """The function whose operands are given: `gmm` if there are sizes of groups."""
    return gmm if len(given) == 3 else matmul


def as_tensor(array: Any) -> torch.Tensor:
    """A tensor on the memory of an array."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_tensors(given: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(as_tensor(each) for each in given)


def poisoned(like: Any) -> Any:
    """An array or tensor for a result like this one, in which no element has been written."""
    return torch.full_like(like, torch.nan) if isinstance(like, torch.Tensor) else np.full_like(like, np.nan)


def bits(array: Any) -> bytes:
    if isinstance(array, torch.Tensor):
        array = array.detach().as_subclass(torch.Tensor).contiguous().view(torch.uint8).numpy()
    return bytes(np.asarray(array).tobytes())


def warm(given: tuple[Any, ...], **options: Any) -> Any:
    """The result of a call that later ones like it repeat."""
    for _ in range(3):
        found = product_of(given)(*given, **options)
    return found


@pytest.mark.parametrize(
    ("kind", "m", "dtype", "of_tensors"),
    every_pair(
        ["matmul", "matmul of a transpose", "gmm", "gmm of a transpose", "gmm, 5 groups"],
        [1, 3, 8, 300],
        [np.float32, np.float64, ml_dtypes.bfloat16],
        [False, True],
    ),
)
def test_a_later_call_writes_the_same_bits_without_checks(
    kind: str, m: int, dtype: Any, of_tensors: bool, longer: list[Any]
) -> None:
    depth = K + 8  # no other test has kept a product of it
    matrices = normal(1, 5 if "5" in kind else 8, depth, N).astype(dtype)
    if "transpose" in kind:
        matrices = matrices.swapaxes(1, 2).copy().swapaxes(1, 2)
    sizes = np.zeros(len(matrices), np.int64 if m == 8 else np.int32)
    sizes[1], sizes[3] = m // 2, m - m // 2 - (m > 4)  # a row of no group is zero
    rest = (matrices[0],) if kind.startswith("matmul") else (matrices, sizes)
    for seed in range(4):
        given: tuple[Any, ...] = normal(seed, m, depth).astype(dtype), *rest
        given = as_tensors(given) if of_tensors else given
        wanted = product_of(given)(*given)
        out = poisoned(wanted)
        checked = len(longer)
        assert product_of(given)(*given, out=out) is out
        assert bits(out) == bits(wanted)
    assert longer and len(longer) == checked  # the last call is not among them


@pytest.mark.parametrize("of_tensors", [False, True])
@pytest.mark.parametrize("given", [DENSE, GROUPED], ids=["matmul", "gmm"])
def test_calls_with_out_alone_are_kept_too(given: tuple[Any, ...], of_tensors: bool, longer: list[Any]) -> None:
    given = as_tensors(given) if of_tensors else given
    out = poisoned(np.empty((M, N), np.float32))
    out = torch.from_numpy(out) if of_tensors else out
    warm(given, out=out)
    longer.clear()
    found = product_of(given)(*given)
    assert found is not out and bits(found) == bits(out) and not longer


def read_only() -> Any:
    array = np.zeros((M, N), np.float32)
    array.flags.writeable = False
    return array


class Named(np.ndarray):  # type: ignore[type-arg]
    pass


class NamedTensor(torch.Tensor):
    pass


REFUSED: dict[str, Callable[[], Any]] = {
    "more rows": lambda: np.zeros((M + 1, N), np.float32),
    "one axis": lambda: np.zeros(M * N, np.float32),
    "three axes": lambda: np.zeros((1, M, N), np.float32),
    "dtype": lambda: np.zeros((M, N), np.float64),
    "integers": lambda: np.zeros((M, N), np.int32),
    "byte order": lambda: np.zeros((M, N), np.dtype(np.float32).newbyteorder()),
    "read-only": read_only,
    "column-major": lambda: np.zeros((N, M), np.float32).T,
    "gaps": lambda: np.zeros((M, 2 * N), np.float32)[:, :N],
    "list": lambda: [np.zeros((M, N), np.float32)],
    "number": lambda: 1.0,
    "tensor of another dtype": lambda: torch.zeros(M, N, dtype=torch.float64),
    "tensor of complex numbers": lambda: torch.zeros(M, N, dtype=torch.complex64),
    "tensor of another shape": lambda: torch.zeros(N, M),
    "strided tensor": lambda: torch.zeros(N, M).T,
    "gradient": lambda: torch.zeros(M, N, requires_grad=True),
    "sparse": lambda: torch.zeros(M, N).to_sparse(),
    "meta": lambda: torch.zeros(M, N, device="meta"),
}
TAKEN: dict[str, Callable[[], Any]] = {
    "subclass": lambda: np.zeros((M, N), np.float32).view(Named),
    "masked": lambda: np.ma.masked_array(np.zeros((M, N), np.float32), np.eye(M, N)),
    "unaligned": lambda: np.zeros(4 * M * N + 1, np.uint8)[1:].view(np.float32).reshape(M, N),
    "array for tensors and tensor for arrays": lambda: None,
    "subclass of tensors": lambda: torch.zeros(M, N).as_subclass(NamedTensor),
}


@pytest.mark.parametrize("of_tensors", [False, True])
@pytest.mark.parametrize("given", [DENSE, GROUPED], ids=["matmul", "gmm"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_the_checks_refuse_is_refused_later_too_and_not_written(
    name: str, given: tuple[Any, ...], of_tensors: bool, longer: list[Any]
) -> None:
    given = as_tensors(given) if of_tensors else given

    def outcome() -> tuple[type, str]:
        out = REFUSED[name]()
        with pytest.raises(pl.PalladioError) as error:
            product_of(given)(*given, out=out)
        values = out[0] if isinstance(out, list) else out
        assert name in ("number", "sparse", "meta") or not any(bits(values))
        return type(error.value), str(error.value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.KeptCalls, "again", lambda *args: None)
        patch.setattr(pl.KeptCalls, "again_in_memory", lambda *args: None)
        before = outcome()
    wanted = bits(warm(given))
    longer.clear()
    assert outcome() == before and longer
    assert bits(product_of(given)(*given)) == wanted


@pytest.mark.parametrize("of_tensors", [False, True])
@pytest.mark.parametrize("given", [DENSE, GROUPED], ids=["matmul", "gmm"])
@pytest.mark.parametrize("name", TAKEN)
def test_what_only_the_checks_take_is_written_by_the_longer_way(
    name: str, given: tuple[Any, ...], of_tensors: bool, longer: list[Any]
) -> None:
    given = as_tensors(given) if of_tensors else given
    wanted = warm(given)
    warm(given, out=poisoned(wanted))
    longer.clear()
    out = TAKEN[name]()
    if out is None:
        out = np.zeros((M, N), np.float32) if of_tensors else torch.zeros(M, N)
    assert product_of(given)(*given, out=out) is out and longer
    assert bits(out.data if name == "masked" else out) == bits(wanted)


def square(of_tensors: bool, grouped: bool) -> tuple[Any, tuple[Any, ...]]:
    """The memory of the left operand and of what follows it, and operands whose product has the shape of both."""
    memory = np.concatenate([normal(0, 8, 8), normal(1, 8, 8)])
    matrices = normal(2, 8, 8, 8)
    given = (
        (memory[:8], matrices, np.array([2, 0, 1, 0, 0, 3, 0, 0], np.int32)) if grouped else (memory[:8], matrices[0])
    )
    return (as_tensor(memory), as_tensors(given)) if of_tensors else (memory, given)


@pytest.mark.parametrize("of_tensors", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_memory_of_an_operand_is_refused_and_memory_beside_it_is_not(
    grouped: bool, of_tensors: bool, longer: list[Any]
) -> None:
    memory, given = square(of_tensors, grouped)
    product = product_of(given)
    wanted = warm(given)
    warm(given, out=poisoned(wanted))
    longer.clear()
    before = bits(memory)
    matrix = given[1][2] if grouped else given[1]
    operand = "lhs" if grouped else "x"
    for out, name in (
        (given[0], operand),
        (memory[:8], operand),
        (memory[1:9], operand),
        (matrix, "rhs" if grouped else "y"),
    ):
        kept, checked = bits(out), len(longer)
        with pytest.raises(pl.PalladioValueError, match="overlaps an input") as error:
            product(*given, out=out)
        assert error.value.argument == "out" and error.value.got == f"memory of {name}"
        assert bits(out) == kept and len(longer) > checked
    assert bits(memory) == before
    longer.clear()
    assert product(*given, out=memory[8:]) is not None and not longer
    assert bits(memory[8:]) == bits(wanted) and bits(memory[:8]) == before[: len(before) // 2]


@pytest.mark.parametrize("of_tensors", [False, True])
def test_memory_of_the_sizes_is_refused(of_tensors: bool, longer: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed.fsdp", raising=False)  # where it is loaded, sizes are copied
    memory = np.zeros(M * N + 8, np.int32)
    memory[:8] = SIZES
    given = X, MATRICES, memory[:8]
    out: Any = memory.view(np.float32)[4:-4].reshape(M, N)
    if of_tensors:
        given, out = as_tensors(given), as_tensor(out)
    warm(given)
    longer.clear()
    with pytest.raises(pl.PalladioValueError, match="overlaps an input"):
        gmm(*given, out=out)
    assert longer and memory[:8].tolist() == SIZES.tolist() and not memory[8:].any()


@pytest.mark.parametrize("of_tensors", [False, True])
def test_sizes_that_the_checks_refuse_write_nothing(of_tensors: bool) -> None:
    given = as_tensors(GROUPED) if of_tensors else GROUPED
    wanted = warm(given)
    out = poisoned(wanted)
    warm(given, out=out)
    for counts, rule in (([7] + [0] * 7, "sum to more"), ([-1, 1] + [0] * 6, "negative")):
        out[...] = 3
        sizes = np.array(counts, np.int32)
        with pytest.raises(pl.PalladioValueError, match=rule):
            gmm(*given[:2], as_tensor(sizes) if of_tensors else sizes, out=out)
        assert bool((out == 3).all())


@pytest.mark.parametrize("of_tensors", [False, True])
@pytest.mark.parametrize("given", [DENSE, GROUPED], ids=["matmul", "gmm"])
@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setenv("PALLADIO_NUM_THREADS", "3"),
        lambda patch: patch.setenv("PALLADIO_CPU", "portable"),
        lambda patch: patch.setenv("PALLADIO_DEBUG_CHECKS", "1"),
        lambda patch: pl.executor("reference"),
    ],
    ids=["threads", "instructions", "checks", "executor"],
)
def test_another_setting_takes_the_longer_way(
    change: Callable[[pytest.MonkeyPatch], Any], given: tuple[Any, ...], of_tensors: bool, longer: list[Any]
) -> None:
    given = as_tensors(given) if of_tensors else given
    wanted = warm(given)
    warm(given, out=poisoned(wanted))
    with pytest.MonkeyPatch.context() as patch:
        with change(patch) or nullcontext():
            longer.clear()
            out = poisoned(wanted)
            assert product_of(given)(*given, out=out) is out and longer
            np.testing.assert_allclose(np.asarray(out), np.asarray(wanted), rtol=1e-5, atol=1e-6)
    warm(given)
    longer.clear()
    out = poisoned(wanted)
    assert product_of(given)(*given, out=out) is out and bits(out) == bits(wanted) and not longer


def test_out_is_refused_in_a_traced_function_as_before() -> None:
    out = np.full((M, N), 3, np.float32)

    def refusal() -> str:
        with pytest.raises(pl.PalladioError) as error:
            pl.jit(lambda x: x.sum() + matmul(x, MATRICES[0], out=out).sum())(X)
        return str(error.value)

    before = refusal()
    warm(DENSE)
    warm(DENSE, out=np.empty_like(out))
    assert refusal() == before and bool((out == 3).all())


def test_a_tensor_without_recorded_gradient_is_written(longer: list[Any]) -> None:
    given = as_tensors(DENSE)
    wanted = warm(given)
    longer.clear()
    for out in (torch.nn.Parameter(poisoned(wanted)), poisoned(wanted).requires_grad_()):
        with torch.no_grad():
            assert matmul(*given, out=out) is out and bits(out) == bits(wanted) and not longer
    for out in (torch.nn.Parameter(poisoned(wanted)), poisoned(wanted).requires_grad_()):
        with pytest.raises(pl.PalladioTypeError, match="gradient of the tensor would be lost"):
            matmul(*given, out=out)
        assert bool(out.isnan().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_memory_of_fsdp_can_still_be_resized(
    dtype: torch.dtype, longer: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed.fsdp", object())
    given = tuple(each.to(dtype) for each in as_tensors(DENSE))
    wanted = warm(given)
    longer.clear()
    out = poisoned(wanted)
    assert matmul(*given, out=out) is out and not longer
    assert out.untyped_storage().resizable() and torch.equal(out, wanted)


EVEN, SKEWED = [1, 0, 1, 0, 0, 1, 9, 0, 0], [0, 0, 12, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("of_tensors", [False, True])
def test_calls_with_skewed_sizes_write_the_same_bits(
    of_tensors: bool, longer: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skewed sizes run the kernel that divides the columns."""
    monkeypatch.setattr(tilings, "BRIEF_OPERATIONS", 0)  # or so little work would not be spread
    monkeypatch.setenv("PALLADIO_NUM_THREADS", "2")
    matrices = normal(1, 9, K, N)
    for seed, counts in enumerate([EVEN, EVEN, EVEN, SKEWED, SKEWED, EVEN]):
        given: tuple[Any, ...] = normal(seed, 12, K), matrices, np.array(counts, np.int32)
        given = as_tensors(given) if of_tensors else given
        wanted = gmm(*given)
        longer.clear()
        out = poisoned(wanted)
        assert gmm(*given, out=out) is out and bits(out) == bits(wanted)
        assert seed < 2 or bool(longer) == (of_tensors and counts is SKEWED)
        with pytest.raises(pl.PalladioValueError, match="not the shape of the output"):
            gmm(*given, out=poisoned(given[0]))


@pytest.mark.parametrize("of_tensors", [False, True])
def test_a_later_layer_of_experts_writes_the_same_bits(of_tensors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.array([[0, 3], [4, 0], [1, 3], [0, 2]])
    given: tuple[Any, ...] = normal(0, 4, 32), ids, normal(1, 4, 2), normal(3, 5, 32, 32), normal(4, 5, 32, 16)
    given = as_tensors(given) if of_tensors else given
    wanted = [moe_mlp(*given, transposed=True) for _ in range(3)][-1]
    out = poisoned(wanted)
    for _ in range(3):
        assert moe_mlp(*given, transposed=True, out=out) is out
    out, before = poisoned(wanted), bits(given[0])
    with pytest.raises(pl.PalladioValueError, match="overlaps an input"):
        moe_mlp(*given, transposed=True, out=given[0])
    assert bits(given[0]) == before
    monkeypatch.setattr(experts, "_known_key", None)  # which the checks call
    assert moe_mlp(*given, transposed=True, out=out) is out and bits(out) == bits(wanted)
