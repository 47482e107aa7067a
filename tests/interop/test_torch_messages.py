"""Wrong arguments of the expert layer for PyTorch are errors that name its own arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import palladio as pl
from palladio.interop.torch import moe_mlp

TOKENS, IDS, WEIGHTS = torch.ones(4, 8), torch.zeros(4, 1, dtype=torch.int64), torch.ones(4, 1)
UP, DOWN = torch.ones(2, 8, 6), torch.ones(2, 3, 8)


def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x[:, :3])


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "ids of one axis": ({"expert_ids": IDS[:, 0]}, "expert_ids: an array of another rank"),
    "ids of floats": ({"expert_ids": WEIGHTS}, "expert_ids: integers are needed"),
    "ids of other tokens": ({"expert_ids": IDS[:3]}, "expert_ids: not the experts of each token"),
    "weights of one axis": ({"expert_weights": WEIGHTS[:, 0]}, "expert_weights: an array of another rank"),
    "one matrix": ({"up": UP[0]}, "up: an array of another rank"),
    "matrices in the other order": ({"up": UP.mT}, "up: does not go with the other arrays"),
}


@pytest.mark.parametrize("activation", ["swiglu", relu], ids=["by name", "a function"])
@pytest.mark.parametrize("recorded", [False, True], ids=["forward", "recorded"])
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_has_its_name_here(case: str, recorded: bool, activation: Any) -> None:
    changed, expected = WRONG[case]
    tokens = TOKENS.clone().requires_grad_(recorded)
    given = {"tokens": tokens, "expert_ids": IDS, "expert_weights": WEIGHTS, "up": UP, "down": DOWN, **changed}
    assert moe_mlp(tokens, IDS, WEIGHTS, UP, DOWN, activation=activation).shape == (4, 8)
    with pytest.raises(pl.PalladioError, match=f"^{expected}"):
        moe_mlp(**given, activation=activation)


def test_a_wrong_bias_has_its_name_here() -> None:
    with pytest.raises(pl.PalladioValueError, match=r"^up_bias: does not go with the other arrays"):
        moe_mlp(TOKENS, IDS, WEIGHTS, UP, DOWN, up_bias=torch.ones(2, 5))
