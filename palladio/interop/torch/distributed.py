"""Experts on many processes: each has some of them, and tokens travel to their experts and back.

    experts on rank 0: 0 1    rank 1: 2 3      (DTensors, `Shard(0)` over a dimension of a device mesh)

    tokens ─▶ sort by expert ─▶ all-to-all ─▶ experts of this rank ─▶ all-to-all ─▶ weigh, add up
              a row for each     uneven        the module's own         back          at home
              choice             splits        forward pass

Capacity is unlimited: every row that the router sends is exchanged, none is dropped. Rows keep the order of a single
process, by rank and then by token, so that sums over them are the same.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from palladio.base.dataclass import dataclass
from palladio.base.errors import PalladioTypeError, PalladioValueError, at_call

Tensor = torch.Tensor


class ExpertParallel(ParallelStyle):
    """A plan for `torch.distributed.tensor.parallel.parallelize_module`: the experts of a module on many processes.

        parallelize_module(model, mesh["experts"], {"layers.*.experts": ExpertParallel()})

    The module's parameters have the experts on their first axis. They become DTensors, sharded over the mesh; a rank's
    experts are consecutive. The module is called with `tokens: dtype[t, h]`, `expert_ids: i64[t, k]` and
    `expert_weights: dtype[t, k]` of its own rank, `t` differing from rank to rank, and returns `dtype[t, h]`, as
    `moe_mlp` does; an id outside of 0 to e - 1 has no expert and adds nothing. Its own forward pass sees rows that
    were sent to this rank, and its local experts. All ranks of the mesh call it together, and all run backward or none
    does.

    `fully_shard` on another dimension of the mesh comes after it. In float64 the results and gradients are those of
    one process, bit by bit. A rank that dies is an error on the others, at the latest when the time limit of their
    process group has passed.

    Args:
        parts: 2 or more divide the tokens of a rank, and rows of one part travel while those of another are computed,
            in backward passes too. Gradients of the experts are then sums over the parts. One rank alone computes all
            tokens together.

    Raises:
        PalladioValueError: for fewer parts than one.
    """

    def __init__(self, *, parts: int = 1) -> None:
        super().__init__()
        with at_call():
            if not isinstance(parts, int) or parts < 1:
                raise PalladioValueError(
                    "tokens are exchanged in one part or more", argument="parts", expected="1, 2, ...", got=repr(parts)
                )
        self.parts = parts

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        with at_call():
            experts = _number_of_experts(module, device_mesh)
        for name, parameter in module.named_parameters():
            shards = distribute_tensor(parameter.detach(), device_mesh, [Shard(0)], src_data_rank=self.src_data_rank)
            module.register_parameter(name, torch.nn.Parameter(shards, requires_grad=parameter.requires_grad))
        parts = self.parts if device_mesh.size() > 1 else 1  # on one rank, there is no exchange to overlap
        module.forward = _Exchange(module, device_mesh, experts, parts)
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


@dataclass
class _Route:
    """An exchange of rows among ranks: `sent[r]` of them go to rank r and `received[r]` come from there, in order.

    Fields:
        found: the destination of the rows of the exchange in flight, in either direction.
        pending: that exchange.
    """

    received: list[int]
    sent: list[int]
    group: Any
    found: Any = None
    pending: Any = None

    def begin(self, rows: Tensor, received: list[int], sent: list[int]) -> Tensor:
        """Begin an exchange; returns the tensor that will hold the rows."""
        found = rows.new_empty(sum(received), *rows.shape[1:])
        rows = rows.contiguous()
        self.pending = torch.distributed.all_to_all_single(found, rows, received, sent, self.group, async_op=True)
        self.found = found
        return found

    def end(self) -> Tensor:
        """Wait for the exchange in flight; returns the received rows."""
        self.pending.wait()
        found: Tensor = self.found
        self.pending = self.found = None
        return found


class _Begin(torch.autograd.Function):
    """Begins an exchange; backward ends the one of gradients."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, route: _Route) -> Tensor:
        ctx.route = route
        return route.begin(rows, route.received, route.sent)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.route.end(), None


class _End(torch.autograd.Function):
    """Ends an exchange; backward begins the one of gradients, which `_Begin` returns."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, route: _Route) -> Tensor:
        ctx.route = route
        route.end()
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        route: _Route = ctx.route
        route.begin(grads[0], route.sent, route.received)
        return grads[0], None


def _begun(rows: Tensor, route: _Route) -> Tensor:
    """The rows that the ranks of a group send to this one, once `_ended`; differentiable."""
    found: Tensor = _Begin.apply(rows, route)  # type: ignore[no-untyped-call]
    return found


def _ended(rows: Tensor, route: _Route) -> Tensor:
    """The rows of an exchange in flight."""
    found: Tensor = _End.apply(rows, route)  # type: ignore[no-untyped-call]
    return found


class _Exchange:
    """The forward pass of a module with sharded experts.

    Fields:
        module: its class has the forward pass of the local experts.
        mesh: the ranks that have the experts, of one dimension.
        experts: of all ranks.
        parts: of the tokens, which are exchanged one after the other.
    """

    def __init__(self, module: torch.nn.Module, mesh: DeviceMesh, experts: int, parts: int) -> None:
        self.module = module
        self.mesh = mesh
        self.experts = experts
        self.parts = parts

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # the sizes of an exchange are known when it runs
    def __call__(self, tokens: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """The results of the tokens of this rank."""
        with at_call():
            _require_plain(tokens=tokens, expert_ids=expert_ids, expert_weights=expert_weights)
        split = (torch.tensor_split(each, self.parts) for each in (tokens, expert_ids, expert_weights))
        parts = [_Part(rows, ids, weights, self.experts) for rows, ids, weights in zip(*split, strict=True)]
        counts = self._counts(torch.stack([part.sizes for part in parts]))
        routes = [self._route(part, count) for part, count in zip(parts, counts, strict=True)]
        begun = [_begun(part.rows[: sum(route.sent)], route) for part, route in zip(parts, routes, strict=True)]
        homeward, homes = [], []
        for rows, route, count in zip(begun, routes, counts, strict=True):
            homes.append(_Route(route.sent, route.received, route.group))
            homeward.append(_begun(self._computed(_ended(rows, route), count), homes[-1]))
        outs = [part.combined(_ended(rows, home)) for part, rows, home in zip(parts, homeward, homes, strict=True)]
        return torch.cat(outs).to(tokens.dtype)

    @property
    def _shares(self) -> list[int]:
        """The number of experts of each rank."""
        ranks = self.mesh.size()
        each = _experts_of_a_rank(self.experts, ranks)
        return [min(each, self.experts - each * rank) for rank in range(ranks)]

    def _counts(self, sizes: Tensor) -> list[Tensor]:
        """For each part: the rows that each rank sends to each expert of this one, `i64[ranks, experts of this rank]`.

        Args:
            sizes: `i64[parts, experts]`, the rows of this rank for each expert.
        """
        shares, group = self._shares, self.mesh.get_group()
        here = shares[self.mesh.get_local_rank()]
        rows = torch.cat([part.reshape(-1) for part in torch.split(sizes, shares, dim=1)])
        found = rows.new_empty(len(shares) * self.parts * here)
        sent = [self.parts * share for share in shares]
        torch.distributed.all_to_all_single(found, rows, [self.parts * here] * len(shares), sent, group=group)
        return list(found.view(len(shares), self.parts, here).unbind(1))

    def _route(self, part: _Part, counts: Tensor) -> _Route:
        sent = [int(sizes.sum()) for sizes in torch.split(part.sizes, self._shares)]
        return _Route(counts.sum(dim=1).tolist(), sent, self.mesh.get_group())

    def _computed(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The results of this rank's experts for the rows of all ranks; each rank's rows are sorted by expert."""
        ranks, here = counts.shape
        numbers = torch.arange(here, device=rows.device).repeat(ranks)
        ids = torch.repeat_interleave(numbers, counts.reshape(-1))[:, None]
        return self._of_local_experts(rows, ids, torch.ones_like(ids, dtype=rows.dtype))

    def _of_local_experts(self, rows: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """The module's own forward pass, with the experts of this rank as parameters."""
        local = copy.copy(self.module)
        local._parameters = {name: _local(each) for name, each in self.module._parameters.items()}
        found: Tensor = type(self.module).forward(local, rows, ids, weights)
        return found


class _Part:
    """A part of the tokens of this rank.

    Fields:
        rows: a row for each choice of an expert, sorted by expert; those of no expert are last.
        sizes: the number of rows of each expert.
    """

    def __init__(self, tokens: Tensor, ids: Tensor, weights: Tensor, experts: int) -> None:
        numbers = ids.reshape(-1)
        numbers, self._order = torch.sort(torch.where(numbers < 0, experts, numbers), stable=True)
        self._shape, self._weights = ids.shape, weights
        self.rows = tokens[self._order // ids.shape[1]]
        self.sizes = torch.diff(torch.searchsorted(numbers, torch.arange(experts + 1, device=ids.device)))

    def combined(self, home: Tensor) -> Tensor:
        """The result of each token, from the rows as they leave their experts."""
        order = self._order
        out = torch.cat([home, home.new_zeros(len(order) - len(home), home.shape[1])])
        out = out * self._weights.reshape(-1)[order][:, None]
        back = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
        return out[back].view(*self._shape, out.shape[-1]).sum(dim=1)


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
