"""Looking at a submission, anybody's: what is wrong with the folder, what is in order, what could not be checked.

Logs and claims are read by `golf.foreign`. The audits of the parts are in `claim_form`, `log_audit`, `score_claim`,
`claim_audit`, `script_audit` and `byte_audit`; this puts them together and judges the significance.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from golf.challenge import OTHER_TRACK, RECORD_TRACK, SEEDS_WANTED
from golf.errors import GolfError
from golf.foreign.claim_audit import README, check_claims, check_readme
from golf.foreign.claim_form import NAME, read_claims
from golf.foreign.findings import Audit
from golf.foreign.foreign_run import ForeignRun
from golf.foreign.log_audit import OTHER_TRACKS, Logs, check_logs, counted, read_logs, seed_of
from golf.foreign.reference import rows_of_logs, sentence
from golf.foreign.score_claim import submitted
from golf.foreign.script_audit import SCRIPT, check_code_size, check_script
from golf.report.variants import Variant
from golf.report.verdicts import BETTER, NO_VERDICT, judge
from golf.settings.config import RulesConfig

NOT_CHECKED = (
    "whether the script trains to these scores: nothing was run",
    "legality by behaviour (causality, normalisation, one pass): only the script's own text was read",
)


def audit(folder: Path, reference: Variant | float | None, rules: RulesConfig) -> Audit:
    """Look at everything in `folder`. Raises `GolfError` for what is no folder."""
    if not folder.is_dir():
        raise GolfError(f"{folder} is {'no folder' if folder.exists() else 'not there'}: name a submission's folder.")
    found = Audit(unchecked=list(NOT_CHECKED))
    if not any(folder.iterdir()):
        found.unusable.append("the folder is empty")
        return found
    _files(folder, found)
    submission = read_claims(folder, found)
    logs = read_logs(folder, submission, found)
    chosen = submitted(logs, submission)
    code_bytes = check_script(folder, found)
    check_logs(logs, chosen.runs, found)
    if code_bytes is not None:
        check_code_size(code_bytes, submission, chosen.runs, found)
    if submission is not None:
        check_claims(logs, chosen, submission, code_bytes, found)
    check_readme(folder, logs, chosen, submission, found)
    track = f"{folder.absolute()} {submission.texts.get('track', '') if submission else ''}"
    _seeds_and_machine(logs, chosen.runs, bool(OTHER_TRACKS.search(track)), found)
    _significance(chosen.runs, reference, rules, found)
    return found


def _files(folder: Path, found: Audit) -> None:
    names = [path.name for path in folder.iterdir()]
    for name in (README, NAME, SCRIPT):
        if not (folder / name).exists():
            lowered = {other.lower(): other for other in names}
            similar = [lowered[n] for n in difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.9)]
            found.unusable.append(f"there is no {name}" + (f", but {similar[0]}: rename it" if similar else ""))
        elif name != NAME and not (folder / name).is_file():
            found.unusable.append(f"{name} is no file")


def _seeds_and_machine(logs: Logs, runs: Sequence[ForeignRun], is_other: bool, found: Audit) -> None:
    """Whether there are the seeds, and was the machine, that a record wants."""
    wanted = SEEDS_WANTED[OTHER_TRACK if is_other else RECORD_TRACK]
    seeds = {seed for run in runs if (seed := seed_of(run)) is not None}
    if runs and not seeds:
        found.unchecked.append("seeds: no log prints one")
    elif runs and len(seeds) < wanted and not logs.missing_seeds and len(runs) == len(seeds):
        found.look_at.append(f"{counted(len(seeds), 'seed')} in the logs: a record wants {wanted}")
    elif len(seeds) >= wanted:
        found.in_order.append(f"{counted(len(seeds), 'seed')} in the logs")
    machines = {run.texts["machine"] for run in runs if run.texts.get("machine")}
    if others := sorted(machine for machine in machines if "H100" not in machine):
        found.look_at += [f"it ran on {', '.join(others)}: the 600 s of a record are of 8×H100"] * (not is_other)


def _significance(
    runs: Sequence[ForeignRun], reference: Variant | float | None, rules: RulesConfig, found: Audit
) -> None:
    if reference is None:
        found.unchecked.append("significance: no --reference was given")
        return
    if not runs:
        found.unchecked.append("significance: there is no run with a score")
        return
    mine = Variant("submission", "submission", rows_of_logs(runs))
    verdict = judge([mine], reference, rules)[mine.id]
    text = sentence(verdict, reference, rules).replace("**", "")
    if verdict.kind == NO_VERDICT:
        found.unchecked.append(f"significance: {text}")
    else:
        (found.in_order if verdict.kind == BETTER else found.look_at).append(text)
