"""Whole stacks of techniques against the public scripts' numbers, reached through configuration alone."""

from typing import Any

import pytest
import torch

from golf.training.model.build import build_model
from tests.support import compose, parity

STACK = "tech=[bigram,smear,xsa,partial_rope,ln_scale,value_embed]"


def stack_overrides(config: dict[str, Any]) -> list[str]:
    """Overrides for a parity case in the public scripts' terms."""
    return [
        "scale=laptop",
        "data.fingerprint=null",
        f"data.vocab_size={config['vocab_size']}",
        *(f"model.{key}={config[key]}" for key in ("num_layers", "model_dim", "num_heads", "num_kv_heads", "mlp_mult")),
        "model.compute_dtype=fp32",
        f"tech.bigram.buckets={config['bigram_vocab_size']}",
        f"tech.bigram.dim={config['bigram_dim']}",
        f"tech.xsa.last_n={config['xsa_last_n']}",
        f"tech.partial_rope.dims={config['rope_dims']}",
        f"tech.value_embed.dim={config['ve_dim']}",
        f"tech.value_embed.layers=[{config['ve_layers']}]",
    ]


@pytest.mark.parametrize(
    ("case", "tech"), [("gold6_11l", STACK), ("pr593_leaky_banks", STACK.replace("]", ",leaky_relu]"))]
)
def test_parity_of_the_eleven_layer_stacks(case: str, tech: str) -> None:
    arrays, config = parity(case)
    model = build_model(compose([tech, *stack_overrides(config)]))
    model.load_state_dict({k.removeprefix("param/"): torch.from_numpy(v) for k, v in arrays.items() if "param/" in k})
    ids, targets = torch.from_numpy(arrays["input_ids"]), torch.from_numpy(arrays["target_ids"])
    loss = model(ids, targets)
    loss.backward()
    assert loss.item() == pytest.approx(float(arrays["loss"]), rel=1e-5)
    torch.testing.assert_close(model.logits(ids), torch.from_numpy(arrays["logits"]), rtol=1e-4, atol=1e-4)
    for name, param in model.named_parameters():
        assert param.grad is not None, name
        expected = torch.from_numpy(arrays[f"grad/{name}"])
        assert (param.grad - expected).norm() <= 1e-5 * expected.norm() + 1e-8, name
