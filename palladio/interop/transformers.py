"""Hugging Face models with experts that run on Palladio.

    import palladio.interop.transformers
    model = AutoModelForCausalLM.from_pretrained(..., experts_implementation="palladio")

Importing this module registers the implementation `"palladio"` for every model whose experts go through Transformers'
`ExpertsInterface`: Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, DeepSeek-V3, GPT-OSS, GLM-4-MoE and their kin. A model that is
loaded already takes it by `model.set_experts_implementation("palladio")`.
"""

from __future__ import annotations

from typing import Any

from palladio.interop.extras import missing

try:
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, _default_apply_gate
except ImportError as error:
    raise missing("palladio.interop.transformers", "Transformers 5", "transformers") from error

from palladio.interop.torch.experts import moe_mlp

__all__ = ["NAME", "experts_forward"]

NAME = "palladio"
"""The name of the implementation."""


def experts_forward(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """The forward pass of a module of experts, as Transformers' `ExpertsInterface` calls it.

    Args:
        self: the module, with the weights and the attributes that `use_experts_implementation` gives it.
        hidden_states: `dtype[t, h]`.
        top_k_index: `i64[t, k]`; ids outside of 0 to `self.num_experts - 1` belong to other ranks.
        top_k_weights: `dtype[t, k]`.

    Returns:
        `dtype[t, h]`.
    """
    prefix = "gate_up_proj" if self.has_gate else "up_proj"
    return moe_mlp(
        hidden_states,
        top_k_index,
        top_k_weights,
        getattr(self, prefix),
        self.down_proj,
        activation=_activation(self),
        up_bias=getattr(self, f"{prefix}_bias") if self.has_bias else None,
        down_bias=self.down_proj_bias if self.has_bias else None,
        transposed=not self.is_transposed,
        after=self.post_expert_norm if getattr(self, "has_post_expert_norm", False) else None,
    )


def _activation(module: Any) -> Any:
    """The activation of a module of experts: by its name where it is SwiGLU or GPT-OSS's, else as a function."""
    if not module.has_gate:
        return module.act_fn
    gate = getattr(type(module), "_apply_gate", None)
    if gate is _default_apply_gate and type(module.act_fn).__name__ in ("SiLU", "SiLUActivation"):
        return "swiglu"
    named = getattr(gate, "__qualname__", "")
    if named == "GptOssExperts._apply_gate" and (module.alpha, module.limit) == (1.702, 7.0):
        return "gpt_oss"
    return module._apply_gate


ALL_EXPERTS_FUNCTIONS.register(NAME, experts_forward)
