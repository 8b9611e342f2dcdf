"""Check an idea from its import up to its exported script.

    golf idea check ideas/my_idea                # one idea, or every idea in a folder
    golf idea check ideas/my_idea model=11l      # with further overrides

A small model is trained on made-up text for a few steps, which takes a minute on two cores. The proofs are those of
every run: the technique acts, no score sees later tokens, every parameter has a group and moves. Rows of 4,096 tokens
and documents are proved beside it. Then the exported script has to print the same losses and pack the same bytes as the
framework. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.idea_folders import Idea, fault, idea_of, ideas, use_ideas
from golf.paths import import_variables
from golf.registry import CHANGES_ORDER, CHANGES_SCORE, technique_types
from golf.settings.config import Config
from golf.words import answer, counted, told_on_stderr

SMALL = (
    *("scale=laptop", "model=4l", "model.model_dim=64", "data.train_batch_tokens=1024"),
    *("data.train_seq_len=64", "data.micro_batches=4", "eval.val_batch_tokens=1024", "schedule.iterations=8"),
    *("schedule.warmup_steps=2", "schedule.warmdown_iters=8", "budget.train_seconds=0", "launch.device=cpu"),
    *("launch.compile=off", "rules.code_bytes=estimate"),
)

# For ideas that refuse windows, which are all of one length.
DOCUMENTS = ("data.loader=packed_shuffled", "model.within_documents=true", "eval.documents=true")


def main(arguments: list[str]) -> int:
    """Check every idea in the folder, print a line for each check, and return 1 if one fails."""
    args = CommandParser("idea check", __doc__).parse_intermixed_args(arguments)
    use_ideas([str(args.folder)])
    inside = args.folder.expanduser().resolve()
    chosen = [i for i in ideas().values() if inside in (i.folder.resolve(), i.folder.parent.resolve())]
    if not chosen:
        raise GolfError(f"{args.folder} has no idea yet: golf idea new writes one.")
    # Checks take a minute, so each is told when it is done.
    with told_on_stderr() if args.json else contextlib.nullcontext():
        told = [_checked(idea, args.overrides) for idea in chosen]
    if args.json:
        print(answer(told))
    return 1 if any(one["error"] for one in told) else 0


def _checked(idea: Idea, overrides: list[str]) -> dict[str, Any]:
    """Print a line for each check of `idea`, and return them with the error, which is None if all hold."""
    held, said = [], None
    print(f"{idea.name}  ({idea.folder}, code {idea.digest()})")
    try:
        for line in checks(idea, overrides):
            held.append(line)
            print(f"  ok      {line}", flush=True)
    except GolfError as error:
        said = str(error)
        print(f"  FAILED  {error}")
    return {"idea": idea.name, "folder": idea.folder, "code": idea.digest(), "held": held, "error": said}


def checks(idea: Idea, overrides: list[str]) -> Iterator[str]:
    """Yield a line for each check that holds. Raises `GolfError` at the first that does not."""
    if said := fault(idea):
        raise GolfError(said)
    if idea_of(technique_types()[idea.name]) != idea:
        raise GolfError(f"the technique {idea.name} is registered by another module than {idea.file}")
    yield f"{idea.file.name} registers the technique {idea.name}"
    yield _own_test(idea)
    with tempfile.TemporaryDirectory(prefix="golf-idea-") as name:
        yield from check_runs(idea, overrides, Path(name))


def _own_test(idea: Idea) -> str:
    """Run the idea's own tests and return a line about them."""
    if not (files := sorted(idea.folder.glob("test_*.py"))):
        raise GolfError(f"there is no test: write {idea.folder / f'test_{idea.name}.py'}, against a slow definition")
    if find_spec("pytest") is None:
        raise GolfError("pytest is not installed: pip install pytest")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)]
    done = subprocess.run(command, env={**os.environ, **import_variables()}, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise GolfError(f"its test fails:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return f"its test: {done.stdout.strip().splitlines()[-1]}"


def _more_rows(cfg: Config, overrides: list[str]) -> Iterator[str]:
    """Yield a line each about long rows and about documents, which the small run has none of.

    Raises `GolfError` if a token acts where it must not.
    """
    from golf.lab.proofs.scoring_proofs import LONGEST_ROW, document_leaks, future_leaks
    from golf.settings.composition import compose

    long = dataclasses.replace(cfg, data=dataclasses.replace(cfg.data, train_seq_len=LONGEST_ROW))
    if leaks := future_leaks(long):
        raise GolfError(leaks[0])
    yield f"no token acts on an earlier one in rows of {LONGEST_ROW:,}"
    try:
        within = compose([*overrides, "model.within_documents=true", "eval.documents=true"])
    except GolfError as error:
        yield f"documents: not tried, the idea refuses them ({error})"
        return
    if leaks := [*document_leaks(within), *future_leaks(within)]:
        raise GolfError(leaks[0])
    yield "no token acts on another document"


def check_runs(idea: Idea, overrides: list[str], folder: Path) -> Iterator[str]:
    """Yield a line each about composing, a run on two ranks in `folder`, and the exported script.

    Raises `GolfError` at the first check that fails.
    """
    from golf.launch.launcher import train_and_score
    from golf.run.identity import variant_id
    from golf.run.result import OK
    from golf.settings.composition import compose
    from golf.submission.code_bytes import code_bytes
    from golf.submission.rehearsal import rehearse, small_data
    from golf.submission.script.bundle import Bundle

    kind: Any = technique_types()[idea.name]
    stored = (f"quant.attn.format={idea.name}", f"quant.mlp.format={idea.name}", "quant.small_numel=1000")
    if kind.effect == CHANGES_ORDER:
        try:
            kind().check(compose([*SMALL, "data.loader=shuffled"]))
            overrides = ["data.loader=shuffled", *overrides]
        except GolfError:
            overrides = [*DOCUMENTS, *overrides]
    if kind.effect == CHANGES_SCORE:
        overrides = ["eval.stride=32", *overrides]
    plain = compose([*SMALL, *(o for o in overrides if not o.startswith(f"tech.{idea.name}."))])
    where = [f"{key}={value}" for key, value in small_data(folder, plain).settings().items()]
    names = [*plain.tech, *(n for n in kind.requires if n not in plain.tech), idea.name]
    base = [
        *SMALL,
        *where,
        *(stored if kind().number_format() else ()),
        *(o for o in overrides if not o.startswith("tech=")),
        f"tech=[{','.join(dict.fromkeys(names))}]",
    ]
    cfg = compose([*base, "launch.nproc=2"])
    without = compose([*base, f"drop=[{idea.name}]"])
    if idea.name in without.tech or idea.name in without.idea_code or variant_id(without) == variant_id(cfg):
        raise GolfError(f"drop=[{idea.name}] does not take it out")
    yield f"drop=[{idea.name}] is another variant ({variant_id(cfg)}, without it {variant_id(without)})"
    os.environ["GOLF_RUNS"] = str(folder / "runs")
    result, _ = train_and_score(cfg)
    score = result.final_score
    if result.state != OK or score is None:
        raise GolfError(f"the run is {result.state}: {result.reason}")
    steps = counted(result.steps, "step")
    yield f"{steps} on 2 ranks, every proof, {score.val_bpb:.3f} bits per byte from the artifact"
    yield from _more_rows(cfg, base)
    bundle = Bundle(cfg)
    rehearsal = rehearse(cfg, bundle.readable.encode(), Path(sys.executable), folder)
    size = rehearsal.artifact_bytes
    yield f"the exported script: the same {rehearsal.losses} losses, the same {size:,} bytes of artifact"
    without.rules.code_bytes = "exact"
    yield f"code: {len(bundle.wrapped) - code_bytes(without):+,} bytes of the wrapped script"
