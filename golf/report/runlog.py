"""What a run writes while it goes on: `train.log` for the field's readers, `metrics.jsonl` for programs.

The lines of train.log are formatted exactly as the public scripts print them; only the tags that say how a score was
quantized and compressed are this run's own. Ranks other than the first have a log that writes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from golf.config import Config, grad_accum_steps, training_seconds, ttt_recipe, world_size
from golf.report.console import Display, display_for
from golf.run.files import disk_error
from golf.run.folder import RunFolder
from golf.scoring.bits import Score
from golf.techniques.base import Progress


class RunLog:
    """Methods are named for what happened; each writes to the files and tells the display."""

    def __init__(self, folder: RunFolder, cfg: Config, *, is_first: bool):
        self.cfg, self.folder = cfg, folder
        self.display: Display = display_for(is_first)
        self._log = _open(folder.train_log) if is_first else None
        self._metrics = _open(folder.metrics) if is_first else None
        self._last_loss = float("nan")

    def line(self, text: str) -> None:
        _write(self._log, self.folder.train_log, text)

    def metric(self, event: str, **values: Any) -> None:
        _write(self._metrics, self.folder.metrics, json.dumps({"event": event, **values}))

    def close(self) -> None:
        self.display.close()
        for file in (self._log, self._metrics):
            if file is not None:
                file.close()

    def start(self, *, train_shards: int, val_tokens: int, model_params: int, attention: str) -> None:
        """The header of the log."""
        c, d, o, m = self.cfg, self.cfg.data, self.cfg.optim, self.cfg.model
        embed_lr = o.tied_embed_lr if m.tie_embeddings else o.embed_lr
        self.line(str(self.folder.train_log))
        self.line(f"val_bpb:enabled tokenizer_kind=sentencepiece tokenizer_path={d.tokenizer_path}")
        self.line(f"train_loader:dataset:{Path(d.path).name} train_shards:{train_shards}")
        self.line(f"val_loader:shards pattern={Path(d.path) / d.val_files} tokens:{val_tokens}")
        self.line(f"model_params:{model_params}")
        self.line(f"world_size:{world_size(c)} grad_accum_steps:{grad_accum_steps(c)}")
        self.line(attention)
        self.line(f"attention_mode:gqa num_heads:{m.num_heads} num_kv_heads:{m.num_kv_heads}")
        self.line(
            f"tie_embeddings:{m.tie_embeddings} embed_lr:{embed_lr} "
            f"head_lr:{0.0 if m.tie_embeddings else o.head_lr} matrix_lr:{o.matrix_lr} scalar_lr:{o.scalar_lr}"
        )
        self.line(
            f"train_batch_tokens:{d.train_batch_tokens} train_seq_len:{d.train_seq_len} "
            f"iterations:{c.schedule.iterations} warmup_steps:{c.schedule.warmup_steps} "
            f"max_wallclock_seconds:{c.budget.train_seconds:.3f}"
        )
        self.line(f"seed:{c.seed}")

    def warmup_step(self, step: int) -> None:
        total = self.cfg.schedule.warmup_steps
        if total <= 20 or step % 10 == 0 or step == total:
            self.line(f"warmup_step:{step}/{total}")
        self.display.update(0.0, f"warm-up {step}/{total}")

    def train_step(self, step: int, seconds: float, loss: float | None, lr_multiplier: float) -> None:
        """After step `step` (1-based); `loss` is given on the steps that are logged."""
        tokens_per_second = step * self.cfg.data.train_batch_tokens / max(seconds, 1e-9)
        if loss is not None:
            self._last_loss = loss
            self.line(f"{self._step(step)} train_loss:{loss:.4f} {_timing(step, seconds)}")
            self.metric(
                "train",
                step=step,
                train_seconds=round(seconds, 4),
                tokens=step * self.cfg.data.train_batch_tokens,
                train_loss=loss,
                lr_multiplier=round(lr_multiplier, 6),
                tokens_per_second=round(tokens_per_second, 1),
            )
        budget, iterations = training_seconds(self.cfg), self.cfg.schedule.iterations
        seconds_left = max(budget - seconds, 0.0) if budget else (iterations - step) * seconds / step
        fraction = max(step / iterations, seconds / budget if budget else 0.0)
        text = f"step {step}  loss {self._last_loss:.4f}  {tokens_per_second:,.0f} tokens/s  {seconds_left:.0f} s left"
        self.display.update(min(fraction, 1.0), text)

    def validation(self, step: int, seconds: float, score: Score) -> None:
        scores = f"val_loss:{score.val_loss:.4f} val_bpb:{score.val_bpb:.4f}"
        self.line(f"{self._step(step)} {scores} {_timing(step, seconds)}")
        self.metric(
            "validation",
            step=step,
            train_seconds=round(seconds, 4),
            tokens=step * self.cfg.data.train_batch_tokens,
            val_loss=score.val_loss,
            val_bpb=score.val_bpb,
        )
        self.display.say(f"step {step:>5}  validation loss {score.val_loss:.4f}  {score.val_bpb:.4f} bits per byte")

    def warning(self, text: str) -> None:
        """Something that a person would want to change, in the log and on the display."""
        self.line(f"warning: {text}")
        self.display.say(f"warning: {text}")

    def switched_on(self, name: str, progress: Progress) -> None:
        """A late switch is on from the coming step on."""
        self.line(
            f"late_switch:{name} enabled {self._step(progress.step)} frac:{progress.fraction:.3f} "
            f"scale:{progress.lr_multiplier:.4f}"
        )
        self.metric("switched_on", name=name, step=progress.step, fraction=round(progress.fraction, 4))
        self.display.say(f"step {progress.step:>5}  {name} is on")

    def resumed(self, step: int, seconds: float) -> None:
        """Training goes on from a checkpoint."""
        self.line(f"resumed {self._step(step)} {_timing(step, seconds)}")
        self.metric("resumed", step=step, train_seconds=round(seconds, 4))
        self.display.say(f"going on from the checkpoint at step {step}, {seconds:.0f} s into training")

    def stopping_early(self, step: int, seconds: float) -> None:
        self.line(f"stopping_early: wallclock_cap train_time:{seconds * 1000:.0f}ms {self._step(step)}")

    def calibrated(self, tokens: int, matrices: int, seconds: float) -> None:
        """GPTQ has seen the inputs of the matrices that it rounds."""
        source = self.cfg.quant.calibration.source
        self.line(f"gptq:calibrated source={source} tokens={tokens} hessians={matrices} time={seconds * 1000:.0f}ms")
        self.metric("calibrated", source=source, tokens=tokens, matrices=matrices, seconds=round(seconds, 4))
        if tokens < self.cfg.quant.calibration.tokens:
            self.warning(
                f"calibration saw {tokens:,} of quant.calibration.tokens={self.cfg.quant.calibration.tokens:,} "
                "tokens before the training time was over: raise quant.calibration.reserve_seconds."
            )

    def pruned(self, count: int, of: int) -> None:
        """Codes were set to zero until the file was small enough."""
        self.line(f"pruned:{count} of {of} codes to fit")
        self.metric("pruned", codes=count, of=of)

    def peak_memory(self, allocated_mib: int, reserved_mib: int) -> None:
        self.line(f"peak memory allocated: {allocated_mib} MiB reserved: {reserved_mib} MiB")

    def sizes(self, *, raw_model: int, code: int, artifact: int, payload: int, uncompressed: int, ratio: float) -> None:
        tag = f"{self.cfg.quant.tag}+{self.cfg.quant.codec}"
        self.line(f"Serialized model: {raw_model} bytes")
        self.line(f"Code size: {code} bytes")
        self.line(f"Total submission size: {raw_model + code} bytes")
        self.line(
            f"Serialized model {tag}: {artifact} bytes "
            f"(payload:{payload} raw_torch:{uncompressed} payload_ratio:{ratio:.2f}x)"
        )
        self.line(f"Total submission size {tag}: {artifact + code} bytes")

    def round_trip(self, score: Score) -> None:
        """The score of the artifact read back from disk."""
        self._final(f"{self._final_tag}_roundtrip", "post_quant", score)

    def sliding(self, score: Score) -> None:
        """The artifact's score with a sliding window."""
        e = self.cfg.eval
        setting = f"stride:{e.stride} " + (f"tail:{e.tail} " if e.tail != "exact" else "")
        self._final(f"{self._final_tag}_sliding_window", "post_quant_sliding", score, setting)

    def ttt_start(self, parts: int, windows: int) -> None:
        """Before test-time training: its chunks of text (sgd) or batches of documents (lora)."""
        e, recipe = self.cfg.eval, ttt_recipe(self.cfg)
        if e.ttt.method == "sgd":
            self.line(
                f"ttt_sliding:start chunks={parts} chunk_tokens={recipe.chunk_tokens} total_windows={windows} "
                f"stride={e.stride or recipe.seq_len} ttt_lr={recipe.lr} ttt_epochs={e.ttt.epochs} "
                f"freeze_blocks={e.ttt.freeze_blocks}"
            )
            if parts == 1:
                self.display.say("the whole split is one chunk: test-time training trains nothing")
        else:
            self.line(
                f"ttt_lora:start batches={parts} documents={windows} chunk_tokens={recipe.chunk_tokens} "
                f"ttt_lr={recipe.lr} rank={e.ttt.lora_rank}"
            )

    def ttt_part(self, done: int, parts: int, val_bpb: float, seconds: float) -> None:
        """`val_bpb` is over this rank's share of what has been scored."""
        if done % 10 == 1 or done == parts:
            self.line(f"  ttt_chunk [{done}/{parts}] bpb={val_bpb:.6f} time={seconds:.1f}s")
        self.display.update(done / parts, f"test-time training {done}/{parts}  {val_bpb:.4f} bits per byte")

    def test_time_trained(self, score: Score) -> None:
        """The artifact's score with test-time training."""
        kind = "ttt_sliding" if self.cfg.eval.ttt.method == "sgd" else "ttt_lora"
        self.line(f"{kind}:done val_loss={score.val_loss:.6f} val_bpb={score.val_bpb:.6f} elapsed={score.seconds:.1f}s")
        self._final("legal_ttt", "post_quant_ttt", score)

    @property
    def _final_tag(self) -> str:
        return f"final_{self.cfg.quant.tag}_{self.cfg.quant.codec}"

    def _final(self, tag: str, event: str, score: Score, setting: str = "") -> None:
        scores = f"val_loss:{score.val_loss:.4f} val_bpb:{score.val_bpb:.4f}"
        self.line(f"{tag} {scores} {setting}eval_time:{score.seconds * 1000:.0f}ms")
        self.line(f"{tag}_exact val_loss:{score.val_loss:.8f} val_bpb:{score.val_bpb:.8f}")
        self.metric(event, val_loss=score.val_loss, val_bpb=score.val_bpb, how=score.how)

    def _step(self, step: int) -> str:
        return f"step:{step}/{self.cfg.schedule.iterations}"


def _timing(step: int, seconds: float) -> str:
    return f"train_time:{seconds * 1000:.0f}ms step_avg:{seconds * 1000 / max(step, 1):.2f}ms"


def _open(path: Path) -> TextIO:
    try:
        return path.open("a", buffering=1)
    except OSError as error:
        raise disk_error(path, error) from error


def _write(file: TextIO | None, path: Path, text: str) -> None:
    if file is None:
        return
    try:
        file.write(text + "\n")
    except OSError as error:
        raise disk_error(path, error) from error
