"""README.md of a record folder: techniques, scores by seed, verdict, bytes, how to run the script, and its checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from golf.artifact.script.settings import submitted
from golf.run.identity import flat
from golf.settings.config import Config, techniques
from golf.submission.manifest import Label
from golf.submission.rehearsal import Rehearsal
from golf.submission.runs import SubmittedRun, mean, sample_sd
from golf.words import counted

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
    """Return the text of README.md; `verdict` is a sentence."""
    cfg = runs[0].cfg
    parts = [
        f"# {label.name}\n\n{label.blurb}",
        f"**{mean(runs, lambda r: r.score.val_bpb):.5f} bits per byte**, {_spread(runs)}. "
        f"Score: {runs[0].score.how}. Track: `{label.track}`.",
        f"## Verdict\n\n{verdict or 'Compared with nothing: no reference was given.'}",
        f"## Seeds\n\n{_seed_table(runs, script_bytes)}",
        f"## Techniques\n\n{technique_table(cfg)}",
        f"## Bytes\n\n{_bytes(runs, script_bytes)} {COUNTED_FORM[is_wrapped]}",
        f"## Running it\n\n{_running(cfg)}",
        f"## Checked\n\n{_checked(runs, rehearsal)}",
    ]
    return "\n\n".join(parts) + "\n"


def in_a_sentence(cfg: Config) -> str:
    """Return a sentence about a configuration, for submissions without a blurb."""
    techniques = f" with {', '.join(cfg.tech)}" if cfg.tech else ""
    return (
        f"{counted(cfg.model.num_layers, 'layer')} of {cfg.model.model_dim}{techniques}, quantized as {cfg.quant.name}."
    )


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


def written(value: object) -> str:
    """Return the text of a setting as a person writes it: numbers in their shortest form with at most 12 digits."""
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    # A scale computes settings in binary, which can turn 0.9 into 0.8999999999999999.
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def technique_table(cfg: Config) -> str:
    """Return a Markdown table of the techniques with their settings, then of the settings unlike the baseline's."""
    rows = ["| what | settings | source |", "|---|---|---|"]
    for technique in techniques(cfg):
        settings = ", ".join(f"{k} {written(v)}" for k, v in dataclasses.asdict(technique).items())
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
        unlike = [f"{key} {written(value)}" for key, value in own if (key, value) not in usual]
        rows.append(f"| {group}, unlike the baseline | {', '.join(unlike) or '–'} | – |")
    return "\n".join(rows)


def _bytes(runs: Sequence[SubmittedRun], script_bytes: int) -> str:
    largest = max(run.artifact_bytes for run in runs)
    cap = runs[0].cfg.budget.artifact_bytes
    total = largest + script_bytes
    return (
        f"The largest seed: {largest:,} of the artifact and {script_bytes:,} of `train_gpt.py` make {total:,} of "
        f"{cap:,} bytes, {cap - total:,} less than allowed."
    )


def _running(cfg: Config) -> str:
    command = f"torchrun --standalone --nproc_per_node={cfg.launch.nproc} train_gpt.py"
    data = submitted(cfg).data
    return f"""```bash
pip install -r requirements.txt
export DATA_PATH={data.path}    # folder of the shards
SEED={cfg.seed} {command}    # trains, packs artifact.golf, scores it: the row of seed {cfg.seed} above
EVAL_ONLY=1 {command}    # scores the artifact.golf that is there
```

`DATA_PATH` is the folder with the shards `{data.train_files}` and `{data.val_files}`; scoring alone needs the latter.
`TOKENIZER_PATH` is the SentencePiece model, by default `{data.tokenizer_path}`, or else the file of that name beside
the script. `SEED`, `RUN_ID` (the log is `logs/<RUN_ID>.txt`), `ARTIFACT_PATH`, `ITERATIONS`,
`MAX_WALLCLOCK_SECONDS` and the others that `ENVIRONMENT` in the script lists are read from the environment. Any number
of processes that divides {cfg.data.micro_batches} trains on the same tokens in every step."""


def _checked(runs: Sequence[SubmittedRun], rehearsal: Rehearsal) -> str:
    budget = runs[0].cfg.budget
    lines = [
        "`train_gpt.py` was run in a clean environment with nothing but `requirements.txt`, on a small model and text: "
        f"{rehearsal.losses} lines of losses and scores are equal to those of the framework that made the runs, the "
        f"artifact of {rehearsal.artifact_bytes:,} bytes is the same to the byte, and `EVAL_ONLY=1` gives it the same "
        "score.",
        "In every run the guards were green: techniques and parameters are live, and no score breaks causality, "
        "normalisation or the single pass, as far as changing tokens of a small text can show.",
        f"Training ended within {budget.train_seconds:g} s and scoring within {budget.eval_seconds:g} s in every run."
        if budget.train_seconds
        else "The runs had no time budget.",
        *sorted({f"Warning of a run: {warning}." for run in runs for warning in run.result.warnings}),
    ]
    return "\n".join(f"- {line}" for line in lines)
