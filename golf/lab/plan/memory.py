"""About the most memory that a run on a CPU takes, for plans."""

from __future__ import annotations

import dataclasses

from golf.lab.plan.counted_flops import count_pass, outside
from golf.lab.plan.flops import layer_order
from golf.registry import CHANGES_STEP
from golf.settings.config import Config, changes_steps, mean_seq_len, micro_batch_tokens, mlp_hidden, ttt_recipe
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer

# A run on a CPU: Python, torch and the proofs before the clock, and copies of activations that each visit of a layer
# keeps, as measured on six runs.
CPU_BYTES, STREAM_COPIES, HIDDEN_COPIES, STATE_BYTES_A_PARAMETER = 1.3e9, 20, 3, 18
BYTES_OF = {"fp32": 4, "bf16": 2}


def cpu_bytes(cfg: Config, model: GPT) -> float:
    """Return about the most bytes of a run on a CPU, all ranks together; `model` may be on the meta device."""
    m, recipe = cfg.model, ttt_recipe(cfg)
    visits = len(layer_order(model, model.active_in_scoring))
    trained = BYTES_OF[m.compute_dtype] * micro_batch_tokens(cfg)
    # Test-time training keeps activations in the dtype of scores; phases have batches of their own.
    phases = cfg.eval.ttt.lora_phases
    seqs = {"off": 0, "sgd": recipe.batch_seqs, "lora": max(recipe.batch_seqs, phases.batch_seqs * bool(phases.count))}
    adapted = BYTES_OF[cfg.eval.dtype] * seqs[cfg.eval.ttt.method] * recipe.seq_len
    kept = CPU_BYTES + max(trained, adapted) * visits * (STREAM_COPIES * m.model_dim + HIDDEN_COPIES * mlp_hidden(m))
    if changes_steps(cfg):
        # What rules and other optimizers keep beside the state of Muon and Adam.
        usual = {name: technique for name, technique in cfg.tech.items() if technique.effect != CHANGES_STEP}
        own, plain = (build_optimizer(c, model) for c in (cfg, dataclasses.replace(cfg, tech=usual)))
        states = [sum(part.state_bytes() for part in optimizer.parts()) for optimizer in (own, plain)]
        kept += max(0, states[0] - states[1])
    if outside(cfg):
        kept += micro_batch_tokens(cfg) * _outside_bytes_per_token(cfg, model.active_in_scoring)
    return cfg.launch.nproc * (kept + STATE_BYTES_A_PARAMETER * sum(p.numel() for p in model.parameters()))


def _outside_bytes_per_token(cfg: Config, active: tuple[str, ...]) -> float:
    """Return the bytes that techniques from outside golf keep for the backward pass; 0 where torch cannot count."""
    own = {name: technique for name, technique in cfg.tech.items() if name not in outside(cfg)}
    try:
        kept = [
            count_pass(shapeless_model(c), mean_seq_len(cfg), active, trains=True).kept_bytes
            for c in (cfg, dataclasses.replace(cfg, tech=own))
        ]
    # A module from outside may raise anything; the plan names it beside its operations.
    except Exception:
        return 0.0
    return max(0.0, kept[0] - kept[1])
