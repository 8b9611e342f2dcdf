"""One run that somebody else made, under the names of Golf's own results, each number with its source."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from golf.field.figures import Figure, whole
from golf.field.log_reader import LogRun
from golf.field.other_games import OTHER_GAME, other_game
from golf.field.scores import (
    ARTIFACT_KINDS,
    AVERAGING_GAIN_BPB,
    LEAST_BPB,
    POST,
    PRE,
    SLIDING,
    TTT,
    LoggedScore,
    final_score,
    last_of,
    settled,
)
from golf.run.result import CRASHED, DIVERGED, OK

IMPLAUSIBLE = "implausible"  # state of a run with a score that no model of text has
UNFINISHED = "unfinished"  # state of a log that ends before a score of the artifact, without a crash
NOTHING_READ = "no step and no score of the artifact is read in it"  # of logs of an evaluation in a form of its own
SCORED = ("_bpb", "_loss", "_eval_seconds")  # endings of the names of scores
FIRST_LINES = 6  # training and validation lines of a run, which tell it from other seeds
LAST_VALIDATION = 0.99  # fraction of all steps from which on a validation is that of the trained model
_NAMED_SEED = re.compile(r"(?:seed[ _=-]?|(?:^|[_-])s)(\d{1,9})(?!\d)", re.IGNORECASE)
_UNLIMITED = re.compile(r"non[_-]?record|unlimited", re.IGNORECASE)


@dataclass
class ForeignRun:
    """A run, its figures by the names of `RunRow` fields and some more. A number that the source lacks is absent."""

    name: str
    files: list[str]
    figures: dict[str, Figure] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # scheme, machine, how, tag, track
    scores: list[LoggedScore] = field(default_factory=list)
    courses: tuple[list[str], ...] = ([], [])  # first `step:loss` in training, numbers on the way in scoring
    printed: list[Figure] = field(default_factory=list)  # bits per byte in training and elsewhere in the log
    state: str = OK
    reason: str = ""
    faults: list[str] = field(default_factory=list)
    variant: str = ""
    folder: str = ""
    digest: str = ""  # digest of the log's bytes, with the place of the run in it
    is_last_in_file: bool = True

    def value(self, name: str) -> float | None:
        """Return a figure's number, None if it is absent."""
        figure = self.figures.get(name)
        return figure.value if figure is not None else None

    def count(self, name: str) -> int | None:
        """Return a figure as an integer, None if it is absent or no integer."""
        return whole(self.value(name))

    def present(self, *names: str) -> list[Figure]:
        """Return the figures of these names that the run has."""
        return [self.figures[name] for name in names if name in self.figures]

    @property
    def has_score(self) -> bool:
        """Tell whether the run has a finite final score."""
        value = self.value("val_bpb")
        return value is not None and math.isfinite(value)

    @property
    def bpb(self) -> float:
        """The final score in bits per byte, of a run that has one."""
        return self.figures["val_bpb"].value

    @property
    def seed(self) -> int | None:
        """The seed that the log prints, else the one in its file's name."""
        printed = self.count("seed")
        return self.named_seed if printed is None else printed

    @property
    def named_seed(self) -> int | None:
        """The seed in the file's name."""
        return named_seed(self.files[0])

    def may_be_of_seed(self, seed: int) -> bool:
        """Tell whether the log is of this seed: it prints it, or prints none and has it in its path as a number."""
        if self.count("seed") is not None:
            return seed in (self.count("seed"), self.named_seed)
        return self.seed == seed or bool(re.search(rf"(?<![\d.]){seed}(?![\d.]*\d)", self.files[0]))

    @property
    def is_misnamed(self) -> bool:
        """Tell whether the log prints another seed than its file's name has."""
        return None not in (self.named_seed, self.count("seed")) and self.named_seed != self.count("seed")

    @property
    def is_unlimited(self) -> bool:
        """Tell whether the run is on the track without limits of time."""
        return is_unlimited_track(f"{self.folder} {self.texts.get('track', '')}")


ForeignRuns = Sequence[ForeignRun]  # those of one folder or log


def is_unlimited_track(text: str) -> bool:
    """Tell whether a folder or the text of a track names the one without limits of time."""
    return bool(_UNLIMITED.search(text))


def named_seed(name: str) -> int | None:
    """Return the seed in a file's name, such as `train_seed42.log` or `log_s7.txt`."""
    match = _NAMED_SEED.search(name.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def foreign_run(run: LogRun, name: str, file: str) -> ForeignRun:
    """Return the run in a log: its scores by their kinds, the artifact's bytes, and its state."""
    foreign = ForeignRun(name, [file], dict(run.figures))
    # The scores come first: evaluation seconds are the sum of theirs.
    _take_scores(foreign, run, file)
    _take_seconds(foreign, file)
    _take_sizes(foreign, run)
    _take_pace(foreign, run)
    if run.gpu:
        # nvidia-smi lists every GPU of the machine, also those that no rank used.
        foreign.texts["machine"] = f"{foreign.count('world_size') or run.gpus}× {run.gpu}"
    foreign.state, foreign.reason = _ending(foreign, run)
    if game := other_game(run):
        foreign.state, foreign.reason = (
            OTHER_GAME,
            f"a log of {game}: its text and clock are others, so nothing compares",
        )
        foreign.figures = {name: figure for name, figure in foreign.figures.items() if not name.endswith(SCORED)}
        foreign.scores.clear()
    return foreign


def scored_state(run: ForeignRun) -> tuple[str, str]:
    """Return the state of a run with a score and, unless it is `ok`, the reason."""
    if run.bpb >= LEAST_BPB:
        return OK, ""
    score = run.figures["val_bpb"]
    why = "its target entered the prediction, or bytes are counted wrong"
    return IMPLAUSIBLE, f"{score.text or score.value} bpb is below {LEAST_BPB}, which no model of this text has: {why}"


def score_figures(score: LoggedScore, prefix: str, file: str) -> dict[str, Figure]:
    """Return a score's bits per byte, loss and seconds with their sources, by names that begin with `prefix`."""
    source = f"{file}:{score.line} ({score.tag})"
    figures = {f"{prefix}_bpb": Figure(score.val_bpb, source, score.bpb_text)}
    if score.val_loss is not None:
        figures[f"{prefix}_loss"] = Figure(score.val_loss, source, score.loss_text)
    if score.seconds is not None:
        figures[f"{prefix}_eval_seconds"] = Figure(score.seconds, f"{file}:{score.seconds_line} ({score.tag})")
    return figures


def _take_scores(foreign: ForeignRun, run: LogRun, file: str) -> None:
    """Settle the kind of every score; the last one of each kind becomes the run's."""
    # Averaged weights are scored after the last validation; that score, if printed, is the model's.
    before = [s for s in run.scores if s.kind == PRE]
    pre = _before_quantization(run, before)
    foreign.scores = settled(
        run.scores,
        sliding_from=run.sliding_from,
        stride=foreign.count("eval_stride") or run.sliding_stride,
        pre_quant_bpb=pre.val_bpb if pre else None,
        averaged=run.averaged and not before,
    )
    foreign.faults += list(dict.fromkeys(s.doubt for s in foreign.scores if s.doubt))
    foreign.printed = [Figure(s.val_bpb, "", s.bpb_text) for s in run.curve if s.val_bpb is not None]
    foreign.printed += [Figure(float(text), "", text) for text in run.printed]
    foreign.courses = [f"{s.step}:{s.train_loss:.4f}" for s in run.curve[:FIRST_LINES] if s.train_loss], run.progress
    if pre is not None:
        foreign.figures |= score_figures(pre, PRE, file)
    for kind in (POST, SLIDING, TTT):
        if score := last_of(foreign.scores, kind):
            foreign.figures |= score_figures(score, kind, file)
            if kind != POST:
                foreign.texts[f"{kind}_how"] = score.how
    final, fault = final_score(foreign.scores)
    if final is not None:
        figures = score_figures(final, "val", file)
        foreign.figures |= {name: figures[name] for name in ("val_bpb", "val_loss") if name in figures}
        foreign.texts |= {"how": final.how, "tag": final.tag}
    if fault:
        foreign.faults.append(fault)


def _take_seconds(foreign: ForeignRun, file: str) -> None:
    """Add up the seconds of all scores of the artifact; where none is timed, take the log's own total."""
    last = [last_of(foreign.scores, kind) for kind in ARTIFACT_KINDS]
    if timed := [score for score in last if score is not None and score.seconds is not None]:
        total = sum(score.seconds or 0.0 for score in timed)
        lines = ", ".join(f"{file}:{score.seconds_line}" for score in timed)
        foreign.figures["eval_seconds"] = Figure(round(total, 6), f"sum of {lines}" if len(timed) > 1 else lines)
    elif "total_eval_seconds" in foreign.figures:
        foreign.figures["eval_seconds"] = foreign.figures["total_eval_seconds"]


def _before_quantization(run: LogRun, scores: Sequence[LoggedScore]) -> LoggedScore | None:
    """Return the last of the `scores` before quantization, else the last validation: that of the exported weights."""
    likeliest = [s for s in (*reversed(scores), _last_validation(run)) if s is not None]
    artifact = next((s.val_bpb for s in run.scores if s.kind == POST), math.inf)
    # An average of weights whose score is far above the artifact's was not exported.
    exported = [s for s in likeliest if s.val_bpb <= artifact + AVERAGING_GAIN_BPB]
    return next(iter([*exported, *likeliest]), None)


def _last_validation(run: LogRun) -> LoggedScore | None:
    """Return the last validation in training as a score, None if steps of training followed it."""
    line = run.last_val
    if line is None or line.val_bpb is None or run.steps is None or line.step < LAST_VALIDATION * run.steps:
        return None
    tag = f"validation at step {line.step}"
    return LoggedScore(tag, line.val_bpb, line.bpb_text, line.val_loss, kind=PRE, claimed=PRE, line=run.last_val_line)


def _take_sizes(foreign: ForeignRun, run: LogRun) -> None:
    """Take the last artifact whose bytes and the code's are a printed total; without one, the last of each."""
    raw, artifacts, codes, totals = (
        [(scheme, figure) for kind, scheme, figure in run.sizes if kind == wanted]
        for wanted in ("raw", "artifact", "code", "total")
    )
    code = next((f for s, f in reversed(codes) if s == "compressed"), codes[-1][1] if codes else None)
    blocks = [f for kind, _, f in run.sizes if kind == "block"]
    # Scripts print a total of raw weights and code too, without a scheme: it is no submission's size.
    uncompressed = {r.value + c.value for _, r in raw for _, c in codes} if raw else set()
    real = [(s, f) for s, f in totals if s or f.value not in uncompressed or f.value in {a.value for _, a in artifacts}]
    fits = [(a, t) for t in real for a in artifacts if code and a[1].value + code.value == t[1].value]
    artifact, total = fits[-1] if fits else (artifacts[-1] if artifacts else None, real[-1] if real else None)
    if artifact:
        foreign.figures["artifact_bytes"] = artifact[1]
        foreign.texts["scheme"] = artifact[0]
    if code:
        foreign.figures["code_bytes"] = code
    if total:
        foreign.figures["total_bytes"] = total[1]
    elif blocks:
        foreign.figures["total_bytes"] = blocks[-1]
    elif artifact and code:
        source = f"{artifact[1].source} + {code.source}"
        # The sum is as coarse as its coarser part.
        coarser = max(artifact[1], code, key=lambda figure: figure.unit_in_last_place)
        foreign.figures["total_bytes"] = Figure(artifact[1].value + code.value, source, coarser.text)
    if total and artifact and code and not fits:
        parts = f"{artifact[1].value:,.0f} of the model + {code.value:,.0f} of code"
        foreign.faults.append(f"{total[1].value:,.0f} bytes in total are not {parts}")


def _take_pace(foreign: ForeignRun, run: LogRun) -> None:
    """Keep the step time that was printed at the last step; otherwise divide training time by steps."""
    steps, seconds = foreign.figures.get("steps"), foreign.figures.get("train_seconds")
    timed_step = run.timed_step if run.timed_step is not None else run.steps
    if seconds is not None and run.steps is not None and (timed_step or 0) < LAST_VALIDATION * run.steps:
        # The clock was printed long before the end: it is not the time of the training.
        del foreign.figures["train_seconds"]
        seconds = None
    # The printed average is of all steps so far: an earlier line's misses later slow steps.
    if "step_ms" in foreign.figures and (run.paced_step == run.steps or timed_step != run.steps):
        return
    foreign.figures.pop("step_ms", None)
    if steps and seconds and steps.value > 0 and seconds.value > 0 and timed_step == run.steps:
        source = f"{seconds.source} over {steps.source}"
        foreign.figures["step_ms"] = Figure(round(seconds.value * 1000 / steps.value, 4), source)


def _ending(foreign: ForeignRun, run: LogRun) -> tuple[str, str]:
    """Return the run's state and, unless it is `ok`, the reason."""
    if "val_bpb" in foreign.figures:
        return scored_state(foreign) if foreign.has_score else (DIVERGED, "its final score is no number")
    where = f"at step {run.steps}" if run.steps is not None else "before its first step"
    # A run that crashes after its loss was no number has diverged: that is the cause.
    if run.diverged_line is not None:
        return DIVERGED, f"the loss is no number {where} (line {run.diverged_line})"
    # A run that went on has survived what looked like its crash.
    if run.crash_line is not None and run.crash_line > run.last_figure_line:
        return CRASHED, f"{run.crash} (line {run.crash_line}, {where})"
    if run.steps is None:
        return UNFINISHED, NOTHING_READ
    return UNFINISHED, f"the log ends {where}{f' of {run.of}' if run.of else ''} without a score of the artifact"
