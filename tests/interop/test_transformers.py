"""Models of Hugging Face's Transformers with their experts on Palladio, tiny and random, beside Transformers' own."""

from __future__ import annotations

import importlib
import re
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


ONE_LAYER = {"num_hidden_layers": 1, "first_k_dense_replace": 0, "layer_types": ["full_attention"]}


def model(family: str, **others: Any) -> Any:
    torch.manual_seed(0)
    values = {**SIZES, **CONFIGS[family]}
    config = getattr(transformers, f"{family}Config")(**values | {n: v for n, v in others.items() if n in values})
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


@pytest.mark.parametrize("family", CONFIGS)
def test_a_model_generates_the_same_tokens_and_survives_saving(family: str, tmp_path: Path) -> None:
    network = model(family)
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False}
    expected = network.generate(IDS, **options)
    network.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, experts_implementation="palladio")
    assert torch.equal(loaded.generate(IDS, **options), expected)
    loaded.save_pretrained(tmp_path / "again")  # the implementation is not a part of the model
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    assert torch.equal(again.generate(IDS, **options), expected)


COMPILED = [(family, False) for family in CONFIGS] + [(family, True) for family in ("Mixtral", "DeepseekV3", "GptOss")]
"""Each model for inference; for training one of each kind of experts and routers."""


@pytest.mark.parametrize(("family", "training"), COMPILED)
def test_a_model_compiles_whole(family: str, training: bool) -> None:
    torch._dynamo.reset()
    network = model(family, **({} if family == "Mixtral" else ONE_LAYER))  # one with two layers is enough
    network.set_experts_implementation("palladio")
    expected, compiled = network(IDS).logits, torch.compile(network, fullgraph=True, backend="aot_eager")
    with torch.set_grad_enabled(training):
        found = compiled(IDS).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    if training:
        wanted = torch.autograd.grad(expected.square().sum(), [*network.parameters()], allow_unused=True)
        gradients = torch.autograd.grad(found.square().sum(), [*network.parameters()], allow_unused=True)
        torch.testing.assert_close(gradients, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("family", CONFIGS)
def test_logits_of_bfloat16_are_as_near_as_those_of_the_models_own_experts(family: str) -> None:
    network = model(family)
    exact = network(IDS).logits
    network.bfloat16()
    distances = []
    for implementation in ("eager", "palladio"):
        network.set_experts_implementation(implementation)
        with torch.no_grad():
            distances.append(float((network(IDS).logits.float() - exact).norm() / exact.norm()))
    assert distances[1] < 1.5 * distances[0] < 0.1


class Sizes:
    """A configuration for the experts of any model: small, and with any activation."""

    VALUES: dict[str, Any] = {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh", "mlp_hidden_act": "relu2"}
    _experts_implementation = "eager"

    def __getattr__(self, name: str) -> Any:
        if name in self.VALUES:
            return self.VALUES[name]
        if name.startswith("__"):
            raise AttributeError(name)
        if "act" in name:
            return "silu"
        if "limit" in name or "alpha" in name or "eps" in name:
            return 1.5
        return 4 if "expert" in name and "size" not in name else 12 if "intermediate" in name or "inner" in name else 8


def classes_of_experts() -> list[str]:
    """`module:class` for each class of Transformers whose experts go through the interface."""
    folder = Path(transformers.__file__).parent / "models"
    found = []
    for path in sorted(folder.glob("*/modeling_*.py")):
        classes = re.findall(r"^@use_experts_implementation.*\nclass (\w+)", path.read_text(encoding="utf-8"), re.M)
        found += [f"{path.parent.name}.{path.stem}:{name}" for name in classes]
    return found


@pytest.mark.parametrize("name", classes_of_experts())
def test_experts_of_every_model_are_those_of_its_own(name: str) -> None:
    module, _, kind = name.partition(":")
    torch.manual_seed(0)
    config = Sizes()
    experts = getattr(importlib.import_module(f"transformers.models.{module}"), kind)(config)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter)
    tokens = torch.randn(10, 8, requires_grad=True)
    weights, ids = torch.rand(10, 4).topk(2)
    outs, gradients = [], []
    for implementation in ("eager", "palladio"):
        config._experts_implementation = implementation
        outs.append(experts(tokens, ids, weights))
        gradients.append(torch.autograd.grad(outs[-1].sum(), [tokens, *experts.parameters()]))
    torch.testing.assert_close(*outs, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
