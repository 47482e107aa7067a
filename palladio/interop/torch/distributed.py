"""Experts on many processes: each has some of them, and tokens travel to their experts and back.

    experts on rank 0: 0 1    rank 1: 2 3      (DTensors, `Shard(0)` over a dimension of a device mesh)

    tokens ─▶ sort by expert ─▶ all-to-all ─▶ experts of this rank ─▶ all-to-all ─▶ weigh, add up
              a row for each     uneven        the module's own         back          at home
              choice             splits        forward pass

Capacity is unlimited: every row that the router sends is exchanged, none is dropped. Rows keep the order that they have
in one process, of ranks and then of tokens, so that sums over them are the same sums.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call

Tensor = torch.Tensor


class ExpertParallel(ParallelStyle):
    """A plan for `torch.distributed.tensor.parallel.parallelize_module`: the experts of a module on many processes.

        parallelize_module(model, mesh["experts"], {"layers.*.experts": ExpertParallel()})

    The module's parameters have the experts on their first axis. They become DTensors, sharded over the mesh; a rank's
    experts are consecutive. The module is called with `tokens: dtype[t, h]`, `expert_ids: i64[t, k]` and
    `expert_weights: dtype[t, k]` of its own rank, `t` differing from rank to rank, and returns `dtype[t, h]`, as
    `moe_mlp` does; an id outside of 0 to e - 1 is of no expert and adds nothing. Its own forward pass sees rows that
    were sent to this rank and the experts that are here. All ranks of the mesh call it together, and all go through
    backward or none does.

    `fully_shard` on another dimension of the mesh comes after it. In float64 the results and gradients are those of
    one process, bit by bit. A rank that dies is an error on the others, at the latest when the time limit of their
    process group has passed.
    """

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        with at_call():
            experts = _number_of_experts(module, device_mesh)
        for name, parameter in module.named_parameters():
            shards = distribute_tensor(parameter.detach(), device_mesh, [Shard(0)], src_data_rank=self.src_data_rank)
            module.register_parameter(name, torch.nn.Parameter(shards, requires_grad=parameter.requires_grad))
        module.forward = _Exchange(module, device_mesh, experts)
        return module


def _number_of_experts(module: torch.nn.Module, mesh: DeviceMesh) -> int:
    """The size of the first axis of all parameters.

    Raises:
        PalladioValueError: for a mesh of several dimensions, experts that are not the first axis of each parameter of
            the module itself, and fewer experts than a share for each rank.
    """
    if mesh.ndim != 1:
        names = ", ".join(mesh.mesh_dim_names or ())
        raise PalladioValueError(
            "experts are sharded over one dimension of a mesh",
            argument="device_mesh",
            got=f"{mesh.ndim} dimensions{f' ({names})' if names else ''}",
            hint='mesh["name"] is one dimension of a mesh',
        )
    parameters = dict(module.named_parameters())
    experts = next((parameter.shape[0] for parameter in parameters.values() if parameter.dim()), 0)
    for name, parameter in parameters.items():
        if "." in name or parameter.dim() == 0 or parameter.shape[0] != experts:
            raise PalladioValueError(
                "a module of experts has them on the first axis of each of its own parameters",
                argument=name,
                expected=f"[{experts}, ...]" if "." not in name else "a parameter of the module itself",
                got=str(list(parameter.shape)),
            )
    ranks, each = mesh.size(), _experts_of_a_rank(experts, mesh.size())
    if experts <= each * (ranks - 1):
        raise PalladioValueError(
            "each rank has an expert",
            argument="module",
            expected=f"more than {each * (ranks - 1)} experts for {ranks} ranks of {each}",
            got=str(experts),
        )
    return experts


def _experts_of_a_rank(experts: int, ranks: int) -> int:
    """The experts of each rank, as `Shard` shares them out; the last rank may have fewer."""
    return -(-experts // ranks)


class _AllToAll(torch.autograd.Function):
    """An exchange of rows among ranks: `sent[r]` of them go to rank r and `received[r]` come from there, in order."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, received: list[int], sent: list[int], group: Any) -> Tensor:
        ctx.route = sent, received, group
        found = rows.new_empty(sum(received), *rows.shape[1:])
        torch.distributed.all_to_all_single(found, rows.contiguous(), received, sent, group=group)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _exchanged(grads[0], *ctx.route), None, None, None


def _exchanged(rows: Tensor, received: list[int], sent: list[int], group: Any) -> Tensor:
    """The rows that the ranks of a group send to this one; differentiable."""
    found: Tensor = _AllToAll.apply(rows, received, sent, group)  # type: ignore[no-untyped-call]
    return found


class _Exchange:
    """The forward pass of a module whose experts are sharded.

    Fields:
        module: its class has the forward pass of the local experts.
        mesh: the ranks that have the experts, of one dimension.
        experts: of all ranks.
    """

    def __init__(self, module: torch.nn.Module, mesh: DeviceMesh, experts: int) -> None:
        self.module = module
        self.mesh = mesh
        self.experts = experts

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # the sizes of an exchange are known when it runs
    def __call__(self, tokens: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """The results of the tokens of this rank."""
        with at_call():
            _require_plain(tokens=tokens, expert_ids=expert_ids, expert_weights=expert_weights)
        choices = expert_ids.shape[1]
        numbers = expert_ids.reshape(-1)
        ids, order = torch.sort(torch.where(numbers < 0, self.experts, numbers), stable=True)
        rows = tokens[order // choices]
        out = self._computed(rows, ids)
        out = out * expert_weights.reshape(-1)[order][:, None]
        back = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
        return out[back].view(*expert_ids.shape, out.shape[-1]).sum(dim=1).to(tokens.dtype)

    def _computed(self, rows: Tensor, ids: Tensor) -> Tensor:
        """The rows, sorted by expert, as they leave their experts; zeros for ids of no expert."""
        group, ranks = self.mesh.get_group(), self.mesh.size()
        first = torch.arange(self.experts + 1, device=ids.device)
        sizes = torch.diff(torch.searchsorted(ids, first))  # of each expert, rows of this rank
        each = _experts_of_a_rank(self.experts, ranks)
        here = min(each, self.experts - each * self.mesh.get_local_rank())
        shares = [min(each, self.experts - each * rank) for rank in range(ranks)]
        counts = _exchanged(sizes, [here] * ranks, shares, group).view(ranks, here)  # rows of each rank
        sent = [int(part.sum()) for part in torch.split(sizes, shares)]
        received = counts.sum(dim=1).tolist()

        arrived = _exchanged(rows[: sum(sent)], received, sent, group)
        numbers = torch.arange(here, device=ids.device).repeat(ranks)
        local_ids = torch.repeat_interleave(numbers, counts.reshape(-1))[:, None]
        out = self._of_local_experts(arrived, local_ids, torch.ones_like(local_ids, dtype=rows.dtype))
        home = _exchanged(out, sent, received, group)
        return torch.cat([home, home.new_zeros(len(rows) - len(home), home.shape[1])])

    def _of_local_experts(self, rows: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """The module's own forward pass, whose parameters are the experts of this rank."""
        local = copy.copy(self.module)
        local._parameters = {name: _local(each) for name, each in self.module._parameters.items()}
        found: Tensor = type(self.module).forward(local, rows, ids, weights)
        return found


def _local(parameter: Any) -> Any:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _require_plain(**tensors: Any) -> None:
    """Refuse distributed tensors as tokens and choices.

    Raises:
        PalladioTypeError: naming the first one.
    """
    for argument, value in tensors.items():
        if isinstance(value, DTensor):
            raise PalladioTypeError(
                "each rank calls its experts with its own tokens",
                argument=argument,
                expected="a tensor of this rank",
                got=f"a DTensor, {value.placements} over {value.device_mesh}",
                hint="to_local() is the part of this rank",
            )
