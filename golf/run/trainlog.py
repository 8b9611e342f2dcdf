"""Lines of train.log, formatted exactly as the public scripts print them.

Only the tags that name quantization and codec are this run's own. The subclass decides where the lines go: `RunLog`
writes a run folder's files, the exported script prints.
"""

from __future__ import annotations

from pathlib import Path

from golf.bits import Score
from golf.run.progress import Progress
from golf.settings.config import Config, grad_accum_steps, ttt_recipe, world_size


class TrainLog:
    """Log of a run with a method for each event, named after the event."""

    def __init__(self, cfg: Config, path: Path):
        self.cfg, self.path = cfg, path

    def line(self, text: str) -> None:
        """Write one line."""
        raise NotImplementedError

    def start(self, *, train_shards: int, val_tokens: int, model_params: int, attention: str) -> None:
        """Write the header of the log."""
        c, d, o, m = self.cfg, self.cfg.data, self.cfg.optim, self.cfg.model
        embed_lr = o.tied_embed_lr if m.tie_embeddings else o.embed_lr
        self.line(str(self.path))
        self.line(f"val_bpb:enabled tokenizer_kind={d.units} tokenizer_path={d.tokenizer_path}")
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
        # As the public scripts do: every step of a short warm-up, every tenth of a long one.
        if total <= 20 or step % 10 == 0 or step == total:
            self.line(f"warmup_step:{step}/{total}")

    def train_step(self, step: int, seconds: float, loss: float | None, lr_multiplier: float) -> None:
        """Log the end of step `step` (1-based); `loss` in nats is given on the steps that are logged."""
        if loss is not None:
            self.line(f"{self.step_of_all(step)} train_loss:{loss:.4f} {timing(step, seconds)}")

    def validation(self, step: int, seconds: float, score: Score) -> None:
        scores = f"val_loss:{score.val_loss:.4f} val_bpb:{score.val_bpb:.4f}"
        self.line(f"{self.step_of_all(step)} {scores} {timing(step, seconds)}")

    def warning(self, text: str) -> None:
        """Log something that a person would want to change."""
        self.line(f"warning: {text}")

    def switched_on(self, name: str, progress: Progress) -> None:
        """Log that a late switch is on from the coming step on."""
        self.line(
            f"late_switch:{name} enabled {self.step_of_all(progress.step)} frac:{progress.fraction:.3f} "
            f"scale:{progress.lr_multiplier:.4f}"
        )

    def stopping_early(self, step: int, seconds: float) -> None:
        self.line(f"stopping_early: wallclock_cap train_time:{seconds * 1000:.0f}ms {self.step_of_all(step)}")

    def calibrating(self) -> None:
        """Note that calibration for GPTQ begins. train.log has no line for it."""

    def calibrated(self, tokens: int, matrices: int, seconds: float) -> None:
        """Log that the Hessians for GPTQ have been collected."""
        wanted = self.cfg.quant.calibration
        ms = f"{seconds * 1000:.0f}ms"
        self.line(f"gptq:calibrated source={wanted.source} tokens={tokens} hessians={matrices} time={ms}")
        if tokens < wanted.tokens:
            self.warning(
                f"calibration saw {tokens:,} of quant.calibration.tokens={wanted.tokens:,} "
                "tokens before the training time was over: raise quant.calibration.reserve_seconds."
            )

    def pruned(self, count: int, of: int) -> None:
        """Log that `count` of at most `of` codes were set to zero, until the file was small enough."""
        self.line(f"pruned:{count} of {of} codes to fit")

    def fitted(self, factor: float, packs: int) -> None:
        """Log the `factor` of all steps at which the file fills the cap, found in `packs` trials."""
        self.line(f"fitted:steps times {factor:.4f} after {packs} packs")

    def retrained(self, stages: int, tried: int, steps: int, divergence: float, seconds: float) -> None:
        """Log the stages of rounding after which training helped, all its steps and what held-out text says at its end.

        `divergence` is that from the trained model before the last stage is rounded, in nats per token.
        """
        held_out = f"held_out:{divergence:.5f} time={seconds * 1000:.0f}ms"
        self.line(f"retrained:steps {steps} kept after {stages} of {tried} stages {held_out}")

    def tuned(self, steps: int, before: float, after: float, seconds: float) -> None:
        """Log the steps of a tuning, its loss on held-out text before and after, and the seconds with rounding."""
        self.line(f"tuned:steps {steps} held_out:{before:.5f} to {after:.5f} time={seconds * 1000:.0f}ms")

    def peak_memory(self, allocated_mib: int, reserved_mib: int) -> None:
        self.line(f"peak memory allocated: {allocated_mib} MiB reserved: {reserved_mib} MiB")

    def sizes(self, *, raw_model: int, code: int, artifact: int, stored: int, uncompressed: int, ratio: float) -> None:
        tag = f"{self.cfg.quant.tag}+{self.cfg.quant.codec}"
        self.line(f"Serialized model: {raw_model} bytes")
        self.line(f"Code size: {code} bytes")
        self.line(f"Total submission size: {raw_model + code} bytes")
        more = f"(payload:{stored} raw_torch:{uncompressed} payload_ratio:{ratio:.2f}x)"
        self.line(f"Serialized model {tag}: {artifact} bytes {more}")
        self.line(f"Total submission size {tag}: {artifact + code} bytes")

    def round_trip(self, score: Score) -> None:
        """Log the standard score of the artifact as read back from disk."""
        self.final_score(f"{self._final_tag}_roundtrip", "post_quant", score)

    def sliding_start(self) -> None:
        """Note that scoring with a sliding window begins. train.log has no line for it."""

    def sliding(self, score: Score) -> None:
        """Log the artifact's sliding-window score."""
        setting = f"stride:{self.cfg.eval.stride} "
        self.final_score(f"{self._final_tag}_sliding_window", "post_quant_sliding", score, setting)

    def ttt_start(self, parts: int, windows: int) -> None:
        """Log that test-time training begins, with `parts` chunks of text (sgd) or batches of documents (lora)."""
        e, recipe = self.cfg.eval, ttt_recipe(self.cfg)
        if e.ttt.method == "sgd":
            self.line(
                f"ttt_sliding:start chunks={parts} chunk_tokens={recipe.chunk_tokens} total_windows={windows} "
                f"stride={e.stride or recipe.seq_len} ttt_lr={recipe.lr} ttt_epochs={e.ttt.epochs} "
                f"freeze_blocks={e.ttt.freeze_blocks}"
            )
        else:
            self.line(
                f"ttt_lora:start batches={parts} documents={windows} chunk_tokens={recipe.chunk_tokens} "
                f"ttt_lr={recipe.lr} rank={e.ttt.lora_rank}"
            )

    def ttt_part(self, done: int, parts: int, val_bpb: float, seconds: float) -> None:
        """Log that part `done` of `parts` has been scored; `val_bpb` is over this rank's share so far."""
        if done % 10 == 1 or done == parts:
            self.line(f"  ttt_chunk [{done}/{parts}] bpb={val_bpb:.6f} time={seconds:.1f}s")

    def test_time_trained(self, score: Score) -> None:
        """Log the artifact's score with test-time training."""
        kind = "ttt_sliding" if self.cfg.eval.ttt.method == "sgd" else "ttt_lora"
        self.line(f"{kind}:done val_loss={score.val_loss:.6f} val_bpb={score.val_bpb:.6f} elapsed={score.seconds:.1f}s")
        # The tag is the one that public logs have.
        self.final_score("legal_ttt", "post_quant_ttt", score)

    @property
    def _final_tag(self) -> str:
        return f"final_{self.cfg.quant.tag}_{self.cfg.quant.codec}"

    def final_score(self, tag: str, event: str, score: Score, setting: str = "") -> None:
        """Write both lines of a score of the artifact; `event` is the name of its field in result.json."""
        scores = f"val_loss:{score.val_loss:.4f} val_bpb:{score.val_bpb:.4f}"
        self.line(f"{tag} {scores} {setting}eval_time:{score.seconds * 1000:.0f}ms")
        self.line(f"{tag}_exact val_loss:{score.val_loss:.8f} val_bpb:{score.val_bpb:.8f}")

    def step_of_all(self, step: int) -> str:
        return f"step:{step}/{self.cfg.schedule.iterations}"


def timing(step: int, seconds: float) -> str:
    """Return the log's words for the time of training so far and per step."""
    return f"train_time:{seconds * 1000:.0f}ms step_avg:{seconds * 1000 / max(step, 1):.2f}ms"
