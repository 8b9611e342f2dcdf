"""Log of a run: `train.log` in the public formats, `metrics.jsonl` for programs, and the progress display.

The log of other ranks than the first writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from golf.bits import Score
from golf.files import disk_errors
from golf.run.console import display_for
from golf.run.folder import RunFolder
from golf.run.progress import Progress, how_far
from golf.run.trainlog import TrainLog, timing
from golf.settings.config import Config
from golf.words import counted, duration

PACE_KNOWN_STEPS = 10  # enough to tell how long a step takes


class RunLog(TrainLog):
    """Log that writes each event to the files and shows it on the display."""

    def __init__(self, folder: RunFolder, cfg: Config, *, is_first: bool):
        super().__init__(cfg, folder.train_log)
        self.folder = folder
        self.display = display_for(is_first)
        self._log = _open(folder.train_log) if is_first else None
        self._metrics = _open(folder.metrics) if is_first else None
        self.step_factor: float | None = None  # factor on the steps under quant.fit=cap
        self._last_loss = float("nan")
        self._last_step, self._last_seconds = 0, 0.0
        # Stages of the training, which are built after the log, put their own count here.
        self.tokens_after = lambda steps: steps * cfg.data.train_batch_tokens
        # The model is built after the log, too. Its techniques tell numbers of their own.
        self.readings: Callable[[], dict[str, float]] = dict
        # What is said about a run behind each validation: how far it is from what it should be.
        self.expected: Callable[[Path], str] = lambda folder: ""
        # What is said about a run when it is known how long a step takes.
        self.warning_at: Callable[[int, float], str | None] = lambda step, seconds: None

    def line(self, text: str) -> None:
        _write(self._log, self.folder.train_log, text)

    def metric(self, event: str, **values: Any) -> None:
        _write(self._metrics, self.folder.metrics, json.dumps({"event": event, **values}))

    def _metric_at(self, event: str, step: int, seconds: float, **values: Any) -> None:
        at = {"step": step, "train_seconds": round(seconds, 4), "tokens": self.tokens_after(step)}
        self.metric(event, **at, **values)

    def cut_short(self) -> None:
        """Write down the last step: the run stops here, most likely between two steps that are logged."""
        if self._last_step:
            self.metric("cut_short", step=self._last_step, train_seconds=round(self._last_seconds, 4))

    def close(self) -> None:
        self.display.close()
        for file in (self._log, self._metrics):
            if file is not None:
                file.close()

    def warmup_step(self, step: int) -> None:
        super().warmup_step(step)
        self.display.update(0.0, f"warm-up {step}/{self.cfg.schedule.warmup_steps}")

    def train_step(self, step: int, seconds: float, loss: float | None, lr_multiplier: float) -> None:
        super().train_step(step, seconds, loss, lr_multiplier)
        self._last_step, self._last_seconds = step, seconds
        # The clock may not have moved during the first step of a tiny model.
        tokens_per_second = self.tokens_after(step) / max(seconds, 1e-9)
        if loss is not None:
            self._last_loss = loss
            speed = round(tokens_per_second, 1)
            values = {"train_loss": loss, "lr_multiplier": round(lr_multiplier, 6), "tokens_per_second": speed}
            readings = self.readings() if self._metrics else {}
            self._metric_at("train", step, seconds, **values, **({"readings": readings} if readings else {}))
        if step == PACE_KNOWN_STEPS and (warning := self.warning_at(step, seconds)):
            self.warning(warning)
        fraction, left = how_far(self.cfg, step, seconds)
        # The loss of the last logged step: reading another one would wait for the device.
        text = f"step {step}  loss {self._last_loss:.4f}  {tokens_per_second:,.0f} tokens/s  {duration(left)} left"
        self.display.update(fraction, text)

    def validation(self, step: int, seconds: float, score: Score) -> None:
        super().validation(step, seconds, score)
        self._metric_at("validation", step, seconds, val_loss=score.val_loss, val_bpb=score.val_bpb)
        self.display.say(f"step {step:>5}  validation loss {score.val_loss:.4f}  {score.val_bpb:.4f} bits per byte")
        if said := self.expected(self.folder.path):
            self.line(f"expect: {said}")
            self.display.say(f"expect: {said}")

    def warning(self, text: str) -> None:
        super().warning(text)
        self.display.say(f"warning: {text}")

    def switched_on(self, name: str, progress: Progress) -> None:
        super().switched_on(name, progress)
        self.metric("switched_on", name=name, step=progress.step, fraction=round(progress.fraction, 4))
        self.display.say(f"step {progress.step:>5}  {name} is on")

    def resumed(self, step: int, seconds: float, loss: float | None) -> None:
        """Training resumes from a checkpoint, whose last logged loss is `loss` nats per token."""
        if loss is not None:
            self._last_loss = loss
        self.line(f"resumed {self.step_of_all(step)} {timing(step, seconds)}")
        self.metric("resumed", step=step, train_seconds=round(seconds, 4))
        self.display.say(f"going on from the checkpoint at step {step}, {seconds:.0f} s into training")

    def finishing(self, step: int, seconds: float) -> None:
        """Training had ended before this start, after `step` steps: the trained weights are packed and scored."""
        self.line(f"resumed after the training {self.step_of_all(step)} {timing(step, seconds)}")
        self.metric("resumed", step=step, train_seconds=round(seconds, 4))
        self.display.say(
            f"trained before, {counted(step, 'step')} in {seconds:.0f} s: going on with packing and scoring"
        )

    def proved_trained(self, seconds: float, failures: Sequence[str]) -> None:
        """Log the proofs of the trained weights, which took `seconds` outside the clock."""
        self.line(f"proofs of the trained weights: {seconds:.1f}s, no training time")
        self.metric("proved_trained", seconds=round(seconds, 4), failures=list(failures))
        for failure in failures:
            self.warning(f"check failed: {failure}")

    def calibrating(self) -> None:
        own_text = self.cfg.quant.calibration.source == "self_generated"
        self.display.update(1.0, "writing text to calibrate on" if own_text else "calibrating")

    def calibrated(self, tokens: int, matrices: int, seconds: float) -> None:
        super().calibrated(tokens, matrices, seconds)
        source = self.cfg.quant.calibration.source
        self.metric("calibrated", source=source, tokens=tokens, matrices=matrices, seconds=round(seconds, 4))

    def pruned(self, count: int, of: int) -> None:
        super().pruned(count, of)
        self.metric("pruned", codes=count, of=of)

    def fitted(self, factor: float, packs: int) -> None:
        super().fitted(factor, packs)
        self.step_factor = factor
        self.metric("fitted", step_factor=factor, packs=packs)

    def sliding_start(self) -> None:
        self.display.update(1.0, "scoring the artifact with a sliding window")

    def ttt_start(self, parts: int, windows: int) -> None:
        super().ttt_start(parts, windows)
        if parts == 1 and self.cfg.eval.ttt.method == "sgd":
            self.display.say("the whole split is one chunk: test-time training trains nothing")

    def ttt_part(self, done: int, parts: int, val_bpb: float, seconds: float) -> None:
        super().ttt_part(done, parts, val_bpb, seconds)
        self.display.update(done / parts, f"test-time training {done}/{parts}  {val_bpb:.4f} bits per byte")

    def scoring_ended(self, seconds: float) -> None:
        """Log the seconds that count as evaluation, which may be more than those of the scores, as public logs do."""
        self.line(f"total_eval_time:{seconds:.3f}s")

    def final_score(self, tag: str, event: str, score: Score, setting: str = "") -> None:
        super().final_score(tag, event, score, setting)
        self.metric(event, val_loss=score.val_loss, val_bpb=score.val_bpb, how=score.how)


def _open(path: Path) -> TextIO:
    with disk_errors(path):
        # Appended, because a resumed run goes on in its files; by lines, so that a killed run leaves all that it wrote.
        return path.open("a", buffering=1, encoding="utf-8")


def _write(file: TextIO | None, path: Path, text: str) -> None:
    if file is not None:
        with disk_errors(path):
            file.write(text + "\n")
