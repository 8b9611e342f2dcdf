"""The keeper of a run folder: it goes on with what is there, and writes what the run finds into record and result."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Sequence

import torch

from golf.artifact.codec.codecs import codec_version
from golf.artifact.container import load
from golf.artifact.quant.formats import Tensors
from golf.artifact.quant.policy import unmatched_patterns
from golf.bits import Score
from golf.errors import GolfError
from golf.files import sync_folder, write_atomic
from golf.run.core_time import CoreMeter, CoreTime, starved
from golf.run.environment import machine_kind
from golf.run.folder import RunFolder
from golf.run.identity import variant_id
from golf.run.result import DIVERGED, OK, VOID, Result
from golf.run.runlog import RunLog
from golf.run.trained import Trained, checksum, read_trained, write_trained
from golf.settings.config import Config
from golf.settings.consistency import warnings
from golf.system import peak_memory_bytes
from golf.training.data.dataset import Dataset
from golf.training.data.loader import SkippingLoader
from golf.training.loop.budget import budget_state, counted_eval_seconds
from golf.training.loop.calibration import Calibration
from golf.training.loop.checkpoint import Checkpoints, code_of
from golf.training.loop.clock import RunClock
from golf.training.loop.keeper import Keeper
from golf.training.loop.packing import PackedModel, log_sizes
from golf.training.loop.plausible import implausible_score
from golf.training.loop.proving import prove_trained, unequal_weights, warm_up_and_prove
from golf.training.loop.readings import readings_of
from golf.training.loop.schedule import decays_from_the_start
from golf.training.loop.state import TrainState
from golf.training.loop.trained_state import take_over
from golf.training.loop.training import Training
from golf.training.model.attention import try_kernel
from golf.training.model.documents import try_documents
from golf.training.model.weights import weights_to_bytes
from golf.training.ranks import Ranks
from golf.training.services import UNKNOWN_CODE, Services
from golf.words import counted

OTHER_CODE = "other code or launch.compile wrote the checkpoint that this run resumed: launch.fresh=true repeats it"
APART = "after the last step: a gradient, an update or a rate was one rank's own. The first rank's weights are stored"
OTHER_CODE_TRAINED = "other code or launch.compile trained the weights of this run: launch.fresh=true repeats it"


class RunKeeper(Keeper):
    """Keeper of a run folder. `record` is that of the training; `result` is in it, and the run's once it is judged."""

    log: RunLog
    clock: RunClock

    def __init__(
        self,
        cfg: Config,
        folder: RunFolder,
        dataset: Dataset,
        ranks: Ranks,
        log: RunLog,
        services: Services,
        code_bytes: int | None,
    ):
        # What is unknown counts nothing.
        super().__init__(ranks, log, folder.artifact, code_bytes or 0)
        self.cfg, self.folder, self.dataset, self.services = cfg, folder, dataset, services
        self.known_code_bytes, self.is_judged = code_bytes, False
        before = read_trained(folder)
        self.record = before or Trained(_first_result(cfg, folder, dataset), [], ranks.world_size, code_of(cfg), "")
        if before:
            r = before.result
            self.earlier = Training(r.steps, r.train_seconds, r.train_loss, r.pre_quant, diverged=False)
        self._packing_at = self._artifact_at = 0.0  # readings of the clock
        self._scoring = CoreMeter()

    @property
    def result(self) -> Result:
        return self.record.result

    def warn(self, text: str) -> None:
        """Write a warning into log and result."""
        self.log.warning(text)
        self.result.warnings.append(text)

    def take_over(self, state: TrainState) -> None:
        if self.earlier:
            take_over(state, self.folder.weights, self.record.stage_steps)
        try_kernel(self.ranks.device, self.cfg.model)
        if self.cfg.eval.documents:
            try_documents(self.ranks.device, self.cfg.model)
        self.log.tokens_after, self.log.readings = state.stages.tokens_after, readings_of(self.cfg, state.model)
        self.log.warning_at = functools.partial(decays_from_the_start, self.cfg)

    def warm_up(self, cfg: Config, state: TrainState) -> None:
        """Warm up and prove, so that an inert technique tests nothing; or go on with an earlier start's training."""
        for warning in self.folder.read_machine_warnings():
            self.log.warning(warning)
        # Said now, too: a disk that is too small ends the run behind its training.
        unmatched = unmatched_patterns(cfg.quant, state.model.scored_weights())
        if self.earlier:
            for warning in unmatched:
                self.log.warning(warning)
            self._go_on_from_training()
            return
        result, record = self.result, self.record
        for warning in unmatched:
            self.warn(warning)
        result.attention, result.kernels, result.model_params = state.attention, list(state.kernels), state.model_params
        record.failures = warm_up_and_prove(cfg, state, self.dataset, self.log, result, self.services)
        if record.failures and cfg.rules.failed_check == "stop":
            self._end(VOID, "; ".join(record.failures))
            raise GolfError(result.reason)

    def _go_on_from_training(self) -> None:
        """Warn of what has changed since an earlier start trained. Raises `GolfError` if the data has."""
        record, result, cfg = self.record, self.result, self.cfg
        if result.data_fingerprint != self.dataset.fingerprint:
            raise GolfError(
                f"{self.folder.path} was trained on data with fingerprint {result.data_fingerprint}, and the data is "
                f"{self.dataset.fingerprint} now: put the former data back, or give launch.fresh=true to start over."
            )
        here, changed = machine_kind(), list[str]()
        if record.code != code_of(cfg):
            changed.append(OTHER_CODE_TRAINED)
        if (result.machine, record.ranks) != (here, self.ranks.world_size):
            trained_on = f"{result.machine} by {counted(record.ranks, 'rank')}"
            changed.append(f"trained on {trained_on}, and scored on {here} by {counted(self.ranks.world_size, 'rank')}")
        for warning in changed:
            self.log.warning(warning)
        result.name = cfg.name
        result.warnings = list(dict.fromkeys([*result.warnings, *self.folder.read_machine_warnings(), *changed]))
        self.log.finishing(result.steps, result.train_seconds)

    def has_artifact(self) -> bool:
        """Tell, the same on every rank, whether the artifact on disk is that of the record and of this size of code."""
        found = False
        if self.ranks.is_first and self.record.artifact and self.artifact.exists():
            is_whole = checksum(self.artifact.read_bytes()) == self.record.artifact
            found = is_whole and self.result.code_bytes == self.known_code_bytes
        return bool(self.ranks.first(found))

    def resume(self, state: TrainState, loader: SkippingLoader) -> None:
        steps = self.result.steps
        if not self.earlier:
            checkpoints = Checkpoints(self.cfg, self.folder, state, self.dataset.fingerprint)
            start, steps = checkpoints.load(), checkpoints.start.step
            if steps:
                state.switches.resume(start.active)
                state.stages.resume(start.stage_steps)
                self.log.resumed(steps, start.train_seconds, start.train_loss)
            if checkpoints.is_of_other_code:
                self.warn(OTHER_CODE)
            self.clock = RunClock(self.ranks, start.train_seconds, CoreTime(start.cpu_seconds, start.waited_seconds))
            checkpoints.spent, self.checkpoints = self.clock.core_time, checkpoints
        # Those that a resumed run has seen. Calibration reads on where the training ends.
        loader.skip(state.stages.batches_taken(steps))

    def training_ended(self, state: TrainState, training: Training) -> None:
        """Write weights and record, so that the training is safe whatever comes after it."""
        if self.checkpoints is None:
            return
        record = self.record
        self._write_down(training, state)
        if training.diverged:
            self.note_memory()
            self._end(DIVERGED, training.why_diverged())
            return
        # No loss shows it, and no proof: other kinds of GPU round otherwise, so this is no failure.
        if apart := unequal_weights(state.model, self.ranks):
            self.warn(f"{apart}, {APART}")
        record.failures += [*state.switches.never_on(), *state.stages.never_reached(), *state.hooks.idle_averages()]
        record.stage_steps = list(state.stages.steps)
        if self.ranks.is_first:
            self.checkpoints.refuse_late()
            weights = weights_to_bytes(state.final_weights())
            record.weights = checksum(weights)
            # The record first: once the weights have their name, the training is never repeated.
            write_trained(self.folder, record)
            write_atomic(self.folder.weights, weights)
            sync_folder(self.folder.path)

    def _write_down(self, training: Training, state: TrainState) -> None:
        result, cfg = self.result, self.cfg
        result.steps, result.train_seconds = training.steps, training.seconds
        result.tokens_seen = state.stages.tokens_after(training.steps)
        result.step_ms = 1000 * training.seconds / max(training.steps, 1)
        result.train_loss, result.pre_quant = training.train_loss, training.score
        result.budget_train_seconds = cfg.budget.train_seconds
        spent = self.clock.core_time()
        result.cpu_seconds, result.core_share = round(spent.cpu, 3), spent.share
        if said := starved(spent.share, result.train_seconds, cfg.budget.train_seconds):
            self.warn(said)
        for cause in self.clock.recompiles:
            self.warn(f"recompiled while the clock ran: {cause}")

    def calibration_ended(self, calibration: Calibration | None) -> None:
        self.result.calibration_seconds = calibration.seconds if calibration else None

    def tuning_ended(self, seconds: float) -> None:
        self.result.tune_seconds = seconds

    def note_memory(self) -> None:
        """Write down the peak memory of the training: on a CPU the process's peak resident memory, for want of more."""
        allocated = reserved = peak_memory_bytes() >> 20
        if self.ranks.device.type == "cuda":
            allocated = torch.cuda.max_memory_allocated(self.ranks.device) >> 20
            reserved = torch.cuda.max_memory_reserved(self.ranks.device) >> 20
        self.result.peak_memory_mib = max(allocated, self.result.peak_memory_mib or 0)
        self.log.peak_memory(allocated, reserved)

    def prove_trained(self, state: TrainState) -> None:
        failures = prove_trained(self.cfg, state, self.dataset, self.log, self.services)
        self.record.failures = list(dict.fromkeys([*self.record.failures, *failures]))
        self.log.display.update(1.0, "packing the artifact and scoring it")
        self._packing_at = time.perf_counter()

    def write_artifact(self, cfg: Config, packed: PackedModel) -> None:
        """Write the artifact, and its sizes into log, result and record."""
        write_atomic(self.artifact, packed.artifact)
        result, code = self.result, self.known_code_bytes
        result.quantize_seconds, result.step_factor = time.perf_counter() - self._packing_at, self.log.step_factor
        result.raw_model_bytes, result.artifact_bytes = self.folder.weights.stat().st_size, len(packed.artifact)
        result.code_bytes, result.total_bytes = code, None if code is None else len(packed.artifact) + code
        result.cap_bytes, result.codec = cfg.budget.artifact_bytes, codec_version(cfg.quant.codec)
        if code is None:
            self.warn(UNKNOWN_CODE)
        else:
            log_sizes(cfg, packed, result.raw_model_bytes, code, self.log)
        self.record.artifact = checksum(self.artifact.read_bytes())
        write_trained(self.folder, self.record)

    def artifact_ended(self) -> None:
        self._artifact_at = time.perf_counter()
        self._scoring.start()

    def read_artifact(self, cfg: Config) -> Tensors:
        """Return the weights that the artifact holds, found by what the file says of itself."""
        return load(self.artifact, by_its_run=True).state_dict()

    def judge(self, scores: Sequence[Score | None]) -> None:
        cfg, log, result = self.cfg, self.log, self.result
        whole_seconds, mine = time.perf_counter() - self._artifact_at, self._scoring.stop()
        result.eval_core_share = CoreTime(*self.ranks.sum(mine.cpu, mine.waited)).share
        result.post_quant, result.post_quant_sliding, result.post_quant_ttt = scores
        result.eval_seconds = counted_eval_seconds(cfg, result, whole_seconds)
        log.scoring_ended(result.eval_seconds)
        self._end(OK, "")
        # Only the first rank knows the sizes, so it alone judges the run by its budget.
        if self.ranks.is_first:
            before, after = result.pre_quant, result.post_quant
            assert before is not None and after is not None and before.how == after.how
            result.quant_gap_bpb = after.val_bpb - before.val_bpb
            self._end(*budget_state(cfg, result))
        # The lowest one, because the last is not always the one that a leak is in.
        if said := implausible_score(min(score.val_bpb for score in scores if score), self.dataset):
            self.warn(said)
        if not all(score is None or math.isfinite(score.val_loss) for score in scores):
            self._end(DIVERGED, "a score of the artifact is no number")
        if self.record.failures:
            self._end(VOID, "; ".join(self.record.failures))

    def _end(self, state: str, reason: str) -> None:
        self.result.state, self.result.reason, self.is_judged = state, reason, True


def _first_result(cfg: Config, folder: RunFolder, dataset: Dataset) -> Result:
    """Return a result with everything that is known before the model is built."""
    return Result(
        name=cfg.name,
        variant_id=variant_id(cfg),
        seed=cfg.seed,
        machine=machine_kind(),
        warnings=folder.read_machine_warnings() + warnings(cfg),
        tech=list(cfg.tech),
        scale=cfg.scale.name,
        data_name=cfg.data.name,
        data_fingerprint=dataset.fingerprint,
        text_digest=dataset.text_digest,
    )
