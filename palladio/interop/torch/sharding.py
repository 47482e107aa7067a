"""Sharding rules of the operators: the shards of the result for given shards of the operands.

A rule lists, for one dimension of a mesh, the placements under which each rank computes with its own shards alone;
PyTorch redistributes operands with other placements. The groups of a grouped product are consecutive rows, so its rows
are never sharded: `ExpertParallel` distributes experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

Rule = tuple[list[Any], list[Any]]
"""The placement of each result and of each argument; None for arguments that are not tensors."""


def _rule(out: Any, *operands: Any, others: tuple[Any, ...] = ()) -> Rule:
    """A rule of an operator with first arguments `operands`; tensors among the others are replicated."""
    return [out], [*operands, *(Replicate() if _is_tensor(each) else None for each in others)]


def _is_tensor(argument: Any) -> bool:
    return hasattr(argument, "placements") or isinstance(argument, torch.Tensor)


def _gmm(
    lhs: Any, rhs: Any, sizes: Any, offset: Any, existing: Any, dtype: Any, tiling: Any, transpose_rhs: bool, name: str
) -> list[Rule]:
    k, n = (2, 1) if transpose_rhs else (1, 2)
    indices = (sizes, offset)

    def rule(out: Any, left: Any, right: Any) -> Rule:
        found = _rule(out, left, right, others=indices)
        found[1].extend([None if existing is None else out, *[None] * 4])
        return found

    rules = [rule(Replicate(), Replicate(), Replicate()), rule(Shard(1), Replicate(), Shard(n))]
    if existing is None:
        rules.append(rule(Partial(), Shard(1), Shard(k)))
    return rules


def _tgmm(
    lhs: Any, rhs: Any, sizes: Any, offset: Any, existing: Any, dtype: Any, tiling: Any, groups: int, name: str
) -> list[Rule]:
    def rule(out: Any, left: Any, right: Any) -> Rule:
        found = _rule(out, left, right, others=(sizes, offset))
        found[1].extend([None if existing is None else out, *[None] * 4])
        return found

    return [
        rule(Replicate(), Replicate(), Replicate()),
        rule(Shard(1), Shard(0), Replicate()),
        rule(Shard(2), Replicate(), Shard(1)),
    ]


def _matmul(x: Any, y: Any, dtype: Any, tiling: Any, name: str) -> list[Rule]:
    others = (dtype, tiling, name)
    return [
        _rule(Replicate(), Replicate(), Replicate(), others=others),
        _rule(Shard(0), Shard(0), Replicate(), others=others),
        _rule(Shard(1), Replicate(), Shard(1), others=others),
        _rule(Partial(), Shard(1), Shard(0), others=others),
    ]


def _softmax(x: Any, block_rows: Any, name: str) -> list[Rule]:
    axes = [Shard(axis) for axis in range(len(x.shape) - 1)]
    return [_rule(each, each, others=(block_rows, name)) for each in (Replicate(), *axes)]


def _attention(q: Any, k: Any, v: Any, *options: Any) -> list[Rule]:
    axes = [Shard(axis) for axis in range(len(q.shape) - 2) if q.shape[axis] == k.shape[axis]]
    rules = [_rule(each, each, each, each, others=options) for each in (Replicate(), *axes)]
    causal = options[0]
    if not causal:
        rows = Shard(len(q.shape) - 2)
        rules.append(_rule(rows, rows, Replicate(), Replicate(), others=options))
    return rules


RULES: dict[str, Callable[..., list[Rule]]] = {
    "gmm": _gmm,
    "tgmm": _tgmm,
    "matmul": _matmul,
    "softmax": _softmax,
    "attention": _attention,
}

for _name, _rules in RULES.items():
    register_sharding(getattr(torch.ops.palladio, _name).default)(_rules)
