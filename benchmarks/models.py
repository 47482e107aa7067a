"""A model of Hugging Face's Transformers with each implementation of its experts.

The model is a Qwen3-MoE of one layer, scaled: 128 experts of 1024 × 384, eight for each token, 1024 words. The
timing is of the model's own call, attention, router and the last product included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks import inputs
from benchmarks.measure import BEST, OURS, Comparison, Contender, goal
from benchmarks.torch_peers import Result, slow_products

EXPERTS, HIDDEN, INNER, CHOICES, VOCABULARY = 128, 1024, 384, 8, 1024
PAST = 64  # tokens before the one that is decoded
GATHERED = 64  # tokens up to which `batched_mm` is run: it copies the matrices of eight experts for each token
PEERS = ("eager", "batched_mm", "grouped_mm")
TOLERANCES = {"f32": 1e-5, "bf16": 0.03}  # near ties of the router are decided by rounding in bfloat16


@functools.lru_cache(maxsize=1)
def _model(dtype: str) -> Any:
    """The model, with random weights of the size that Transformers gives them."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    import palladio.interop.transformers  # noqa: F401 - registers "palladio"

    torch.manual_seed(inputs.SEED)
    config = Qwen3MoeConfig(
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        moe_intermediate_size=INNER,
        num_experts=EXPERTS,
        num_experts_per_tok=CHOICES,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=128,
        vocab_size=VOCABULARY,
        bos_token_id=1,
        eos_token_id=2,
    )
    return Qwen3MoeForCausalLM(config).eval().to({"f32": torch.float32, "bf16": torch.bfloat16}[dtype])


def _tokens(count: int) -> Any:
    import torch

    draw = np.random.default_rng(inputs.SEED)
    return torch.from_numpy(draw.integers(0, VOCABULARY, size=(1, count)))


def _prefill(model: Any, tokens: int) -> Callable[[], Any]:
    """The logits of the last token, `dtype[vocabulary]`."""
    import torch

    given = _tokens(tokens)

    def run() -> Any:
        with torch.inference_mode():
            return Result(model(given, logits_to_keep=1, use_cache=False).logits[0, -1])

    return run


def _decode(model: Any) -> Callable[[], Any]:
    """One token after `PAST` others; the cache is cut back after each call."""
    import torch
    from transformers import DynamicCache

    given = _tokens(PAST + 1)
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(given[:, :-1], past_key_values=cache)

    def run() -> Any:
        with torch.inference_mode():
            logits = model(given[:, -1:], past_key_values=cache).logits[0, -1]
            cache.crop(-1)
        return Result(logits)

    return run


def _training(model: Any, tokens: int) -> Callable[[], Any]:
    """The loss of the next token and its gradients, added to the existing ones; the result is the embedding's."""
    given = _tokens(tokens)

    def run() -> Any:
        for each in model.parameters():
            if each.grad is not None:
                each.grad.zero_()
        model(given, labels=given, use_cache=False).loss.backward()
        return Result(model.model.embed_tokens.weight.grad)

    return run


def _comparison(dtype: str, kind: str, tokens: int, floor: float) -> Comparison:
    slow = slow_products(ml_dtypes.bfloat16) if dtype == "bf16" and tokens > GATHERED else ""
    model = _model(dtype)
    work = {"prefill": _prefill, "training": _training, "decode": lambda model, tokens: _decode(model)}[kind]

    def contender(name: str, experts: str) -> Contender:
        if slow:  # those of the other layers, too
            return Contender(name, None, missing=slow)
        run = work(model, tokens)

        def chosen() -> Any:
            model.set_experts_implementation(experts)
            return run()

        return Contender(name, chosen, 7 if tokens <= 256 and kind != "training" else 3)

    peers = [each for each in PEERS if each != "batched_mm" or (tokens <= GATHERED and kind != "training")]
    contenders = [contender(OURS, "palladio"), *(contender(f"Transformers, {each}", each) for each in peers)]
    name = f"Qwen3-MoE of one layer, {dtype}, {kind} of {tokens} token" + ("s" if tokens > 1 else "")
    expected = np.empty(0) if slow else _expected(dtype, kind, tokens)
    return Comparison(name, contenders, expected, TOLERANCES[dtype], 0, goal(BEST, floor))


def _expected(dtype: str, kind: str, tokens: int) -> Any:
    """The result of the model's own experts in float64, with the weights of the model that is measured."""
    import copy

    model = copy.deepcopy(_model(dtype)).double()
    model.set_experts_implementation("eager")
    work = {"prefill": _prefill, "training": _training, "decode": lambda model, tokens: _decode(model)}[kind]
    return np.asarray(work(model, tokens)())


CASES: dict[str, Callable[[], Comparison]] = {
    f"model-{dtype}-{kind}-{tokens}": functools.partial(_comparison, dtype, kind, tokens, floor)
    for dtype in TOLERANCES
    for kind, tokens, floor in (
        ("decode", 1, 1.0),
        ("prefill", 16, 1.0),
        ("prefill", 256, 1.3),
        ("prefill", 4096, 1.3),
        ("training", 256, 1.3),
    )
}
