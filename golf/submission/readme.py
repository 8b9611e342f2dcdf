"""README.md of a record folder: techniques, scores by seed, verdict, bytes, how to run the script, and its checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from golf.run.identity import flat
from golf.settings.config import Config, techniques
from golf.submission.manifest import Label
from golf.submission.rehearsal import Rehearsal
from golf.submission.runs import SubmittedRun, mean, sample_sd
from golf.submission.script.settings import submitted
from golf.words import as_override, counted

TEMPLATE = Path(__file__).with_name("readme.md")
LABELS = ("name", "tag")  # fields that say nothing about the run
COUNTED_FORM = {
    True: "`train_gpt.py` is minified and compressed; `train_gpt_readable.py` is the same program for reading.",
    False: "`train_gpt.py` is counted as it is, readable.",
}


def readme(
    runs: Sequence[SubmittedRun],
    label: Label,
    script_bytes: int,
    *,
    is_wrapped: bool,
    verdict: str | None,
    rehearsal: Rehearsal,
) -> str:
    """Return the text of README.md: readme.md of this folder, filled in; `verdict` is a sentence."""
    cfg, budget = runs[0].cfg, runs[0].cfg.budget
    largest = max(run.artifact_bytes for run in runs)
    warnings = sorted({f"- Warning of a run: {warning}." for run in runs for warning in run.result.warnings})
    scored = f"scoring within {budget.eval_seconds:g} s"
    times = f"Training ended within {budget.train_seconds:g} s and {scored} in every run."
    text = TEMPLATE.read_text(encoding="utf-8").format(
        label=label,
        first=runs[0],
        cfg=cfg,
        mean_bpb=mean(runs, lambda r: r.score.val_bpb),
        spread=_spread(runs),
        verdict=verdict or "Compared with nothing: no reference was given.",
        seeds=_seed_table(runs, script_bytes),
        techniques=technique_table(cfg),
        largest=largest,
        script_bytes=script_bytes,
        total=largest + script_bytes,
        cap=budget.artifact_bytes,
        left=budget.artifact_bytes - largest - script_bytes,
        form=COUNTED_FORM[is_wrapped],
        data=submitted(cfg).data,
        command=f"torchrun --standalone --local-addr 127.0.0.1 --nproc_per_node={cfg.launch.nproc} train_gpt.py",
        rehearsal=rehearsal,
        times=times if budget.train_seconds else "The runs had no time budget.",
        warnings="\n".join(warnings),
    )
    return text.rstrip("\n") + "\n"


def in_a_sentence(cfg: Config) -> str:
    """Return a sentence about a configuration, for submissions without a blurb."""
    techniques = f" with {', '.join(cfg.tech)}" if cfg.tech else ""
    shape = f"{counted(cfg.model.num_layers, 'layer')} of {cfg.model.model_dim}"
    return f"{shape}{techniques}, quantized as {cfg.quant.name}."


def _spread(runs: Sequence[SubmittedRun]) -> str:
    sd = sample_sd(runs, lambda r: r.score.val_bpb)
    return "one seed" if sd is None else f"the mean of {len(runs)} seeds, sample standard deviation {sd:.5f}"


def _seed_table(runs: Sequence[SubmittedRun], script_bytes: int) -> str:
    head = "| seed | before quantization | from the artifact | steps | ms a step | training s | scoring s | bytes |"
    rows = [head, "|---|---|---|---|---|---|---|---|"]
    for run in runs:
        result = run.result
        # Logs print four digits of the score before quantization, too.
        before = f"{result.pre_quant.val_bpb:.4f}" if result.pre_quant else "–"
        rows.append(
            f"| {result.seed} | {before} | {run.score.val_bpb:.5f} | {result.steps:,} | {result.step_ms or 0:.1f} "
            f"| {result.train_seconds:.1f} | {result.eval_seconds or 0:.1f} | {run.artifact_bytes + script_bytes:,} |"
        )
    return "\n".join(rows)


def technique_table(cfg: Config) -> str:
    """Return a Markdown table of the techniques with their settings, then of the settings unlike the baseline's."""
    rows = ["| what | settings | source |", "|---|---|---|"]
    for technique in techniques(cfg):
        settings = ", ".join(f"{k} {as_override(v)}" for k, v in dataclasses.asdict(technique).items())
        rows.append(f"| {technique.name} | {settings or '–'} | {technique.source} |")
    m, q = cfg.model, cfg.quant
    shape = f"{counted(m.num_layers, 'layer')} of {m.model_dim}, {m.num_heads} heads, {m.num_kv_heads} key-value heads"
    rows += [
        f"| model | {shape}, vocabulary {m.vocab_size} | – |",
        f"| batch | {cfg.data.train_batch_tokens:,} tokens in sequences of {cfg.data.train_seq_len} | – |",
        f"| quantization | {q.name}; {q.codec} {q.codec_level} | – |",
    ]
    # The schema's defaults are the public baseline, whose settings need no mention.
    for group in ("model", "optim", "schedule", "quant", "eval"):
        own, usual = (list(flat(dataclasses.asdict(getattr(one, group)), left_out=LABELS)) for one in (cfg, Config()))
        unlike = [f"{key} {as_override(value)}" for key, value in own if (key, value) not in usual]
        rows.append(f"| {group}, unlike the baseline | {', '.join(unlike) or '–'} | – |")
    return "\n".join(rows)
