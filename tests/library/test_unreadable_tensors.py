"""Tensors of PyTorch that no kernel can read: each function refuses them by the name of the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import palladio as pl
from palladio.library import attention, gmm, matmul, moe_mlp, rms_norm, softmax, tgmm
from tests.library.references import normal

M, K, N, GROUPS = 8, 4, 4, 2


def tensor(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(normal(seed, *shape))


ROWS, SIZES, IDS = tensor(0, M, K), torch.tensor([5, 3], dtype=torch.int32), torch.zeros(M, 1, dtype=torch.int64)

CALLS: dict[str, tuple[Callable[..., Any], dict[str, torch.Tensor]]] = {
    "matmul": (matmul, {"x": ROWS, "y": tensor(1, K, N)}),
    "gmm": (gmm, {"lhs": ROWS, "rhs": tensor(2, GROUPS, K, N), "group_sizes": SIZES}),
    "tgmm": (tgmm, {"lhs": tensor(3, K, M), "rhs": tensor(4, M, N), "group_sizes": SIZES}),
    "attention": (attention, {"q": tensor(5, 1, M, K), "k": tensor(6, 1, M, K), "v": tensor(7, 1, M, K)}),
    "softmax": (softmax, {"x": ROWS}),
    "rms_norm": (rms_norm, {"x": ROWS, "weight": tensor(8, K)}),
    "moe_mlp": (
        moe_mlp,
        {
            "tokens": ROWS,
            "expert_ids": IDS,
            "expert_weights": tensor(9, M, 1),
            "gate_up": tensor(10, GROUPS, K, 2 * N),
            "down": tensor(11, GROUPS, N, K),
        },
    ),
}
"""Each function with arguments that it takes."""


def freed(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x.untyped_storage().resize_(0)
    return x


OTHERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sparse": torch.Tensor.to_sparse,
    "nested": lambda x: torch.nested.nested_tensor([*x]),
    "ragged": lambda x: torch.nested.nested_tensor([*x], layout=torch.jagged),
    "quantised": lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
    "meta": lambda x: x.to("meta"),
    "freed": freed,
}
RULES = {
    "sparse": "not dense|not in row-major order",
    "nested": "not dense",
    "ragged": "not dense",
    "quantised": "not dense|not a dtype",
    "meta": "no memory of its own",
    "freed": "the memory of the tensor was freed",
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning")
def test_they_are_refused_by_the_name_of_their_argument(name: str, kind: str) -> None:
    function, given = CALLS[name]
    for later in range(2):
        found = function(**given)  # the first of these calls is kept for the next ones
        for argument, value in {**given, "out": found}.items():
            if kind == "ragged" and value.ndim < 2:
                continue  # there is no such tensor
            with pytest.raises(pl.PalladioError, match=RULES[kind]) as caught:
                function(**{**given, argument: OTHERS[kind](value)})
            assert (later, caught.value.argument) == (later, argument)


def test_a_tensor_without_elements_was_not_freed() -> None:
    assert matmul(ROWS[:0].clone(), CALLS["matmul"][1]["y"]).shape == (0, N)


def test_what_else_is_wrong_with_a_call_is_its_own_error() -> None:
    class Broken:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("no values")

    with pytest.raises(RuntimeError, match="no values"):
        gmm(**{**CALLS["gmm"][1], "group_sizes": Broken()})
