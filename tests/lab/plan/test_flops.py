"""Operations against torch's own count while a model runs, and against figures of public records."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from golf.lab.plan.counted_flops import outside
from golf.lab.plan.flops import flops_per_token
from golf.registry import technique_types
from golf.training.model.build import build_model, shapeless_model
from tests.support import compose, techniques_of_models

LANES = ["tech=[parallel_lanes]", "tech.parallel_lanes.first=2"]
SMALL = ["scale=laptop", "model=4l", "model.model_dim=32", "data.train_seq_len=16", "model.compute_dtype=fp32"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["model.tie_embeddings=false", "model.num_kv_heads=1"],
        ["tech=[recurrence,swiglu]", "tech.recurrence.first=1", "tech.recurrence.last=2"],
        *([f"tech=[{','.join([name, *technique_types()[name].requires])}]"] for name in techniques_of_models()),  # type: ignore[attr-defined]
        *([*LANES, f"tech.parallel_lanes.form={form}"] for form in ("separate", "crossed", "crossed_in_turn")),
    ],
    ids=lambda o: "+".join(o) or "baseline",
)
def test_as_counted_by_torch(overrides: list[str]) -> None:
    cfg = compose([*SMALL, *overrides])
    model = build_model(cfg)
    ids = torch.randint(0, cfg.model.vocab_size, (2, cfg.data.train_seq_len))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(ids, ids).backward()
    counted = counter.get_flop_counts()["Global"]
    batched = torch.ops.aten.bmm  # attention: all T × T pairs, of which causal attention needs half
    planned = flops_per_token(cfg, shapeless_model(cfg))
    matmul, attention = (n * ids.numel() for n in (planned.matmul, planned.attention))
    if not outside(cfg):
        assert sum(n for op, n in counted.items() if op != batched) == matmul
        assert counted[batched] / 2 == attention
    # Two counts give a slope, and a head that leaves out the row's last tokens is no line.
    # Attention sinks compute the scores of all pairs, and then leave out half of them. Masked diffusion needs them all.
    unseen = 0 if {"attention_sink", "masked_diffusion"} & {*cfg.tech} else counted[batched] / 2
    assert sum(counted.values()) - unseen == pytest.approx(matmul + attention, rel=0.03)


@pytest.mark.parametrize(
    "experiment, megaflops", [("naive_baseline", 130.5), ("gold6_11l", 228.0)], ids=["baseline", "11 layers"]
)
def test_public_figures(experiment: str, megaflops: float) -> None:
    cfg = compose([f"experiment={experiment}", "scale=record", "data=pydocs", "launch.device=cpu"])
    assert flops_per_token(cfg, shapeless_model(cfg)).total / 1e6 == pytest.approx(megaflops, rel=3e-3)
