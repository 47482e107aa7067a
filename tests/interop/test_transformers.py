"""Models of Hugging Face's Transformers with their experts on Palladio, tiny and random, beside Transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import palladio.interop.transformers  # noqa: F401  registers the implementation

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 64,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
GROUPS = {"n_routed_experts": 4, "moe_intermediate_size": 24, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
CONFIGS = {
    "Mixtral": {"num_local_experts": 4},
    "Qwen2Moe": {"num_experts": 4, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 24},
    "Qwen3Moe": {"num_experts": 4, "moe_intermediate_size": 24, "head_dim": 8},
    "Olmoe": {"num_experts": 4},
    "DeepseekV3": {**GROUPS, **LATENT},
    "GptOss": {"num_local_experts": 4, "head_dim": 8, "layer_types": ["full_attention"] * 2},
    "Glm4Moe": {**GROUPS, "head_dim": 8},
}
IDS = torch.tensor([[5, 9, 33, 7, 60, 12, 3], [8, 8, 1, 63, 20, 41, 17]])


def model(family: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **CONFIGS[family])
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def logits_and_gradients(network: Any, implementation: str) -> tuple[Any, dict[str, Any]]:
    network.set_experts_implementation(implementation)
    network.zero_grad()
    out = network(IDS, labels=IDS)
    out.loss.backward()
    return out.logits.detach(), {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", CONFIGS)
def test_logits_and_gradients_are_those_of_the_models_own_experts(family: str) -> None:
    network = model(family)
    expected, expected_gradients = logits_and_gradients(network, "eager")
    found, gradients = logits_and_gradients(network, "palladio")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=1e-3, atol=1e-6)


def test_a_model_generates_the_same_tokens_and_survives_saving(tmp_path: Path) -> None:
    network = model("Qwen3Moe")
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False}
    expected = network.generate(IDS, **options)
    network.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, experts_implementation="palladio")
    assert torch.equal(loaded.generate(IDS, **options), expected)


def test_a_model_compiles_whole() -> None:
    network = model("Mixtral")
    network.set_experts_implementation("palladio")
    with torch.no_grad():
        expected = network(IDS).logits
        compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(IDS).logits, expected, rtol=1e-4, atol=1e-5)
