"""The expert layer of a mixture of experts and its gradients, for Hopper."""

from palladio.library.hopper.experts.gradients import LayerCall, moe_mlp_vjp
from palladio.library.hopper.experts.layer import moe_mlp

__all__ = ["LayerCall", "moe_mlp", "moe_mlp_vjp"]
