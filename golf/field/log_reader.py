"""A train log as runs: its lines are gathered, and cut where one run ends and another begins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from golf.field.echoed_source import EchoedSource, looks_like_source
from golf.field.event_lines import NOISE, RULE, EventLine
from golf.field.figures import Figure, parse_number, parse_seconds
from golf.field.log_lines import (
    Line,
    ScoreLine,
    SettingLine,
    SizeLine,
    StepLine,
    StopLine,
    is_progress,
    printed_scores,
    read_line,
)
from golf.field.other_games import marked_game
from golf.field.scores import LoggedScore, logged
from golf.field.text import TextFile, without_prefix

EXAMPLES_KEPT = 5
SCORES_KEPT = 400  # largest number a run; sweeps of evaluation settings print many
LINES_KEPT = 50_000  # largest number of training and validation lines of all runs of a log; more are thinned out
RUNS_KEPT = 1000  # largest number a log


@dataclass
class LogRun:
    """The lines of one training in a log, without conclusions."""

    first_line: int
    figures: dict[str, Figure] = field(default_factory=dict)
    latest: dict[str, tuple[float, int]] = field(default_factory=dict)  # (value, line) of the last step's figures
    scores: list[LoggedScore] = field(default_factory=list)
    sizes: list[tuple[str, str, Figure]] = field(default_factory=list)  # (what, scheme, bytes)
    printed: list[str] = field(default_factory=list)  # numbers behind `bpb` elsewhere, which claims may cite
    progress: list[str] = field(default_factory=list)  # the same in lines on the way through the text
    curve: list[StepLine] = field(default_factory=list)  # training and validation lines
    opened: set[str] = field(default_factory=set)  # signs of a beginning so far
    steps: int | None = None
    of: int | None = None  # steps that were planned
    paced_step: int | None = None  # step at which figures["step_ms"] was printed
    timed_step: int | None = None  # step at which figures["train_seconds"] was printed
    last_val: StepLine | None = None
    last_val_line: int = 0
    stopped: bool = False
    diverged_line: int | None = None
    crash_line: int | None = None
    crash: str = ""
    last_figure_line: int = 0
    sliding_from: int | None = None  # line that announces sliding-window scoring
    sliding_stride: int | None = None
    averaged: bool = False  # weights were averaged after training
    gpu: str = ""
    gpus: int = 0
    game: str = ""  # another game, by what its lines have

    @property
    def is_empty(self) -> bool:
        """Tell whether the lines have no step, score or size."""
        return self.steps is None and not self.scores and not any(what != "code" for what, *_ in self.sizes)


@dataclass
class ReadLog:
    """The content of a log file."""

    runs: list[LogRun] = field(default_factory=list)
    lines: int = 0
    source_lines: int = 0  # lines of echoed source
    not_understood: int = 0  # lines
    examples: list[str] = field(default_factory=list)  # some lines that were not understood, with their numbers
    problem: str = ""  # data that were lost in reading


def read_log(path: Path, name: str = "") -> ReadLog:
    """Read a log of any length line by line. Raises `golf.field.text.UnreadableError` for what is not text."""
    file = TextFile(path)
    reader = _LogReader(name or path.name)
    reader.read(file)
    reader.log.problem = file.problem or reader.log.problem
    return reader.log


class _LogReader:
    """The state between the lines of one log."""

    def __init__(self, name: str):
        self.log, self.name = ReadLog(), name
        self.run = LogRun(1)
        self.rank: int | None = None  # rank whose lines count, in a log that several ranks wrote
        self.source = EchoedSource()
        self.header = LogRun(1)  # settings that were printed before the echoed script
        self.late: dict[str, Figure] = {}  # settings after the end of training, of this run or of the next one
        self.shapes: set[str] = set()  # shapes of the examples so far

    def read(self, lines: Iterable[tuple[int, str]]) -> None:
        """Read all lines into `log`."""
        for number, raw in lines:
            self.log.lines += 1
            self._take(number, raw)
        self._end_run()

    def _take(self, number: int, raw: str) -> None:
        """Read one line, unless it is echoed source, noise or another rank's."""
        text, rank = without_prefix(raw)
        if self.source.is_open and self.source.goes_on(number, text):
            self.log.source_lines += 1
            return
        if rank is None and self.source.begins(number, text, not self.run.is_empty):
            self._open_source(number)
            return
        self.run.game = marked_game(text) or self.run.game
        line = read_line(text)
        # Lines of a mixture have scores of its parts, too.
        is_read = isinstance(line, StepLine) or (isinstance(line, ScoreLine) and "_only" not in text)
        if not is_read and (numbers := printed_scores(text)):
            kept = self.run.progress if is_progress(text) else self.run.printed
            kept += numbers
            del kept[:-SCORES_KEPT]
        if line is NOISE or line is RULE:
            return
        # A script that is echoed after a run may lack the line that it begins with.
        is_late_source = isinstance(line, SettingLine) and bool(self.run.scores) and looks_like_source(text)
        if line is None or is_late_source:
            self._not_understood(number, text)
            return
        if rank is not None and not isinstance(line, EventLine):
            # Every rank may print the same numbers. Rank 0 counts, even if another one printed first.
            self.rank = rank if self.rank is None or rank == 0 else self.rank
            if rank != self.rank:
                return
        self._feed(number, line)

    def _open_source(self, number: int) -> None:
        """Take the first line of an echoed script. Settings before the script are the run's."""
        self.log.source_lines += 1
        if self.source.is_sample(number):
            # The script had not ended: the lines since then were sample output in its documentation.
            self.run = LogRun(self.header.first_line, dict(self.header.figures))
            return
        if not self.run.is_empty:
            # A script that is echoed after figures is the next run's.
            self._begin_run(number)
        self.run = LogRun(self.run.first_line, self.run.figures, opened=self.run.opened)
        self.header = LogRun(self.run.first_line, dict(self.run.figures))

    def _feed(self, number: int, line: Line) -> None:
        """Read a line that is not empty: the part of the log that it belongs to takes it."""
        if isinstance(line, StepLine):
            self._step(number, line)
        elif isinstance(line, ScoreLine):
            self._score(number, line)
        elif isinstance(line, SizeLine):
            for what, scheme, count in line.sizes:
                text = "" if line.unit == 1 else f"{count / line.unit:.0f}e{len(str(line.unit)) - 1}"
                self.run.sizes.append((what, scheme, self._figure(count, number, text)))
            del self.run.sizes[:-SCORES_KEPT]
        elif isinstance(line, SettingLine):
            self._settings(number, line)
        elif isinstance(line, StopLine):
            self._stop(number, line)
        else:
            self._event(number, line)
        if not isinstance(line, EventLine):
            self.run.last_figure_line = number

    def _figure(self, value: float, number: int, text: str = "") -> Figure:
        return Figure(value, f"{self.name}:{number}", text or repr(value))

    def _end_run(self) -> None:
        self._keep_late()
        if self.run.is_empty:
            return
        if "part_seed" in self.run.figures:
            # A seed within a line may be that of a part of the model, so one of its own goes before it.
            self.run.figures.setdefault("seed", self.run.figures.pop("part_seed"))
        last = self.log.runs[-1] if self.log.runs else None
        if last is not None and _repeats(self.run, last):
            last.figures = self.run.figures | last.figures
            return
        self.run.figures |= {name: self._figure(*figure) for name, figure in self.run.latest.items()}
        if last is not None and _evaluates(self.run, last):
            # The training's own figures win over those that the evaluation prints again.
            last.figures = self.run.figures | last.figures
            last.scores += self.run.scores
            last.sizes += self.run.sizes
            last.last_figure_line = self.run.last_figure_line
        elif len(self.log.runs) < RUNS_KEPT:
            self.log.runs.append(self.run)
        else:
            self.log.problem = f"only its first {RUNS_KEPT:,} runs were read, up to line {self.run.first_line}"

    def _begin_run(self, number: int) -> None:
        late, self.late = self.late, {}
        self._end_run()
        self.run = LogRun(number, late)

    def _keep_late(self) -> None:
        """Give late settings to the current run, which goes on."""
        self.run.figures = self.late | self.run.figures
        self.late = {}

    def _settings(self, number: int, line: SettingLine) -> None:
        """Take settings; a second sign of the same beginning starts another run."""
        # Of `logs/<id>.txt` the id differs with every run, so the folder alone is the sign of a beginning.
        has_started = self.run.steps is not None or bool(self.run.scores)
        if line.opens and line.opens.split("/")[0] in self.run.opened and has_started:
            self._begin_run(number)
        if line.opens:
            self.run.opened.add(line.opens.split("/")[0])
            self.source.left_line = 0
        for name, text in line.values.items():
            value = parse_number(text)
            if value is not None and math.isfinite(value):
                # After training they may be the next run's in this file: the next step or score decides.
                settings = self.late if self.run.stopped or self.run.scores else self.run.figures
                settings.setdefault(name, self._figure(value, number, text))

    def _step(self, number: int, line: StepLine) -> None:
        """Take a training or validation line, which may begin another run."""
        run = self.run
        if run.steps is None and self._continues_last(line):
            run = self.run = self.log.runs.pop()
        if run.steps is not None and self._starts_over(run, line):
            self._begin_run(number)
            run = self.run
        self._keep_late()
        if (run.stopped or run.sizes) and run.steps is not None and line.val_bpb is None and line.step <= run.steps:
            # A step after the end of training is one of a loop of the export or of the evaluation.
            return
        if run.scores and run.steps is not None and line.step > run.steps and line.train_loss is not None:
            # Training goes on, so these were validations.
            run.printed += [score.bpb_text for score in run.scores]
            run.scores.clear()
        run.curve.append(line)
        if len(run.curve) > LINES_KEPT // (1 + len(self.log.runs)):
            # Without every other line the course of a run can still be drawn.
            del run.curve[1::2]
        if run.steps is None or line.step >= run.steps:
            run.steps = line.step
            run.latest["steps"] = (line.step, number)
        run.of = line.of or run.of
        if line.seconds is not None:
            run.latest["train_seconds"], run.timed_step = (line.seconds, number), line.step
        if line.step_ms is not None and math.isfinite(line.step_ms) and line.step:
            run.latest["step_ms"], run.paced_step = (line.step_ms, number), line.step
        if line.val_bpb is not None or line.val_loss is not None:
            run.last_val, run.last_val_line = line, number
        # A sum is no finite number as soon as one of its parts is none.
        total = (line.train_loss or 0.0) + (line.val_loss or 0.0) + (line.val_bpb or 0.0)
        # A loss that recovers is no divergence: the last step decides.
        run.diverged_line = None if math.isfinite(total) else number

    def _starts_over(self, run: LogRun, line: StepLine) -> bool:
        """Tell whether a step begins another run; it may also be of a late rank or of an inner loop."""
        if run.steps is None or run.steps < 10 or line.step >= run.steps / 2:
            return False
        # Only a clock that was set back is sure; without clocks, the same number of planned steps has to do.
        before = run.latest.get("train_seconds")
        if line.seconds is not None and before is not None:
            return line.seconds < before[0]
        return line.of is not None and line.of == run.of

    def _continues_last(self, line: StepLine) -> bool:
        """Tell whether a run goes on from a checkpoint, after it printed its header again."""
        last = self.log.runs[-1] if self.log.runs else None
        if last is None or last.steps is None or last.stopped or last.scores or last.sizes:
            return False
        return line.step > last.steps and line.of == last.of

    def _stop(self, number: int, line: StopLine) -> None:
        self.run.stopped = True
        if line.step is not None and line.step >= (self.run.steps or 0):
            self.run.steps = line.step
            self.run.latest["steps"] = (line.step, number)
        # Logs of runs that go on from a checkpoint print a clock of 0 ms here.
        if line.seconds:
            self.run.latest["train_seconds"] = (line.seconds, number)
            self.run.timed_step = self.run.steps if line.step is None else line.step

    def _score(self, number: int, line: ScoreLine) -> None:
        if (score := logged(line, number)) is None:
            self._not_understood(number, f"{line.tag} val_bpb:{line.bpb_text}")
            return
        self._keep_late()
        self.run.scores.append(score)
        if len(self.run.scores) > SCORES_KEPT:
            # The first scores are those before quantization, and the last one decides.
            del self.run.scores[SCORES_KEPT // 2]

    def _event(self, number: int, line: EventLine) -> None:
        """Take an event in the course of the run."""
        run = self.run
        if line.kind == "crash":
            run.crash_line, run.crash = number, line.value
        elif line.kind == "eval_clock" and (seconds := parse_seconds(line.value)) is not None:
            run.figures["total_eval_seconds"] = self._figure(seconds, number)
        elif line.kind == "sliding_mode":
            run.sliding_from = number
            run.sliding_stride = int(line.value) if line.value else run.sliding_stride
        elif line.kind == "averaging":
            run.averaged = True
        elif line.kind == "gpu":
            # nvidia-smi prints one such row for each GPU.
            run.gpu, run.gpus = line.value, run.gpus + 1

    def _not_understood(self, number: int, text: str) -> None:
        """Count a line. One line of each shape becomes an example, digits aside."""
        if looks_like_source(text):
            self.log.source_lines += 1
            return
        self.log.not_understood += 1
        shape = "".join("#" if c.isdigit() else c for c in text.strip()[:40])
        if len(self.log.examples) < EXAMPLES_KEPT and shape not in self.shapes:
            self.shapes.add(shape)
            self.log.examples.append(f"{self.name}:{number}: {text.strip()[:100]}")


def _repeats(run: LogRun, before: LogRun) -> bool:
    """Tell whether a run is a recap of the run before it, whose scores, sizes, times and settings it prints again."""
    # Whatever prints more of a beginning started, such as a second copy of the same run.
    if run.opened - {"model_params:"} or any(line.train_loss for line in run.curve):
        return False
    # A run that broke off at its first validation repeats that of another with its seed.
    if not (run.scores or run.sizes or run.steps == before.steps):
        return False
    said, known = (
        {
            *(("score", s.val_bpb) for s in r.scores),
            *(("score", s.val_bpb) for s in r.curve),
            *(("steps", s.step) for s in r.curve),
            *(("train_seconds", s.seconds) for s in r.curve),
            *((name, value) for name, (value, _) in r.latest.items()),
            *((name, figure.value) for name, figure in r.figures.items() if name in before.figures),
            *((what, size.value) for what, _, size in r.sizes),
        }
        for r in (run, before)
    )
    return said - {("score", None), ("train_seconds", None)} <= known


def _evaluates(run: LogRun, trained: LogRun) -> bool:
    """Tell whether a run without steps is an evaluation of the run before it: both print one seed and one size."""
    if run.steps is not None or not run.scores or trained.steps is None:
        return False
    if not run.opened and not run.figures:
        # A script that is echoed in the middle of a run cuts it into two without a new header.
        return True
    seed, params = ((run.figures.get(n), trained.figures.get(n)) for n in ("seed", "model_params"))
    if seed[0] is None or seed[1] is None or seed[0].value != seed[1].value:
        return False
    return params[0] is None or params[1] is None or params[0].value == params[1].value
