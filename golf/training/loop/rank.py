"""The main function of one rank: data, model, warm-up, training, artifact, score of the artifact, result."""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass

import torch

from golf.artifact.codec.codecs import codec_version
from golf.artifact.container import load
from golf.artifact.quant.policy import unmatched_patterns
from golf.errors import GolfError
from golf.files import sync_folder, write_atomic
from golf.run.core_time import CoreMeter, CoreTime, starved
from golf.run.environment import machine_kind
from golf.run.folder import RunFolder
from golf.run.identity import variant_id
from golf.run.result import DIVERGED, OK, VOID, Result
from golf.run.runlog import RunLog
from golf.run.trained import Trained, checksum, read_trained, write_trained
from golf.settings.config import Config, techniques
from golf.settings.consistency import warnings
from golf.system import peak_memory_bytes
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.data.loader import Loader
from golf.training.loop.budget import budget_state, counted_eval_seconds
from golf.training.loop.checkpoint import Checkpoints, code_of
from golf.training.loop.export import Sizes, export
from golf.training.loop.listener import LoopListener
from golf.training.loop.pace import check_speed
from golf.training.loop.plausible import implausible_score
from golf.training.loop.readings import readings_of
from golf.training.loop.run_parts import (
    calibrate_trained,
    log_header,
    score_artifact,
    seconds_left,
    set_up_torch,
    tune_trained,
    validation,
)
from golf.training.loop.stages import Stages
from golf.training.loop.state import TrainState, build_state
from golf.training.loop.trained_state import trained_state
from golf.training.loop.training import Training, train
from golf.training.loop.warmup import proving_warm_up
from golf.training.model.attention import try_kernel
from golf.training.model.documents import try_documents
from golf.training.model.weights import weights_to_bytes
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer
from golf.training.services import NOT_PROVED, UNKNOWN_CODE, Services
from golf.words import counted

UNPROVEN = "the proofs were switched off by GOLF_PROOFS=off"
OTHER_CODE = "other code or launch.compile wrote the checkpoint that this run resumed: launch.fresh=true repeats it"
OTHER_CODE_TRAINED = "other code or launch.compile trained the weights of this run: launch.fresh=true repeats it"


def run_rank(cfg: Config, folder: RunFolder, ranks: Ranks, services: Services) -> Result:
    """Run this rank from data to result. Every rank returns a result; the first rank's is the run's."""
    log = RunLog(folder, cfg, is_first=ranks.is_first)
    try:
        return _run(cfg, folder, ranks, log, services)
    # All exceptions, because a stop signal is one, too.
    except BaseException:
        # The note in the log may fail where the run did: on a full disk.
        with contextlib.suppress(GolfError):
            log.cut_short()
        raise
    finally:
        log.close()


def _run(cfg: Config, folder: RunFolder, ranks: Ranks, log: RunLog, services: Services) -> Result:
    # Data. Before the model, so that missing shards end the run at once.
    set_up_torch(cfg)
    dataset = open_dataset(cfg)

    # Model, optimizer, compiled step. The scorer has a model of its own, in the arithmetic of scoring.
    state, before = build_state(cfg, ranks), read_trained(folder)
    if before:
        state = trained_state(state, folder.weights, before.stage_steps)
    try_kernel(ranks.device, cfg.model)
    if cfg.eval.documents:
        try_documents(ranks.device, cfg.model)
    log.tokens_after, log.readings = state.stages.tokens_after, readings_of(cfg, state.model)
    log_header(log, str(folder.train_log), dataset, state)
    run = _Run(cfg, folder, ranks, log, dataset, state, Scorer(cfg, dataset, ranks), services)
    # Said now, too: a disk that is too small ends the run behind its training.
    unmatched = unmatched_patterns(cfg.quant, state.model.scored_weights())
    for warning in [*folder.read_machine_warnings(), *unmatched]:
        log.warning(warning)

    # Warm-up and proofs, before the clock: compiling takes no training time, and an inert technique tests nothing.
    # Then training, calibration and the artifact. What an earlier start has ended is taken over.
    trained = run.take_over(before) if before else run.warm_up(unmatched)
    result = trained.result
    if trained.failures and cfg.rules.failed_check == "stop" and not before:
        result.state, result.reason = VOID, "; ".join(trained.failures)
        return result
    if not run.is_packed(trained):
        run.train_and_pack(trained)
        if result.state == DIVERGED:
            return result
    ranks.barrier()
    run.score(trained)
    return result


@dataclass(frozen=True)
class _Run:
    """The parts of a run on this rank, and its stages, which write what they find into the record of the training."""

    cfg: Config
    folder: RunFolder
    ranks: Ranks
    log: RunLog
    dataset: Dataset
    state: TrainState
    scorer: Scorer
    services: Services

    def warm_up(self, warnings: list[str]) -> Trained:
        """Warm up and prove; return a record without weights. Its result has `warnings` beside those of the machine."""
        result = _first_result(self.cfg, self.folder, self.dataset, self.state)
        result.warnings += warnings
        failures = self._warm_up_and_prove(result)
        return Trained(result, failures, self.ranks.world_size, code_of(self.cfg), weights="")

    def _warm_up_and_prove(self, result: Result) -> list[str]:
        """Compile and warm up, measure the pace, and prove that what is selected acts.

        Returns a sentence for every proof that failed, the same on every rank: all ranks have to stop together.
        """
        cfg, state, log = self.cfg, self.state, self.log
        log.display.update(0.0, "warming up" if cfg.launch.compile == "off" else "compiling, which takes its time once")
        start = time.perf_counter()
        failures = proving_warm_up(cfg, state, log.warmup_step)
        speed = check_speed(cfg, state)
        if speed and speed.warning:
            result.slowdown = speed.slowdown
            if cfg.launch.unfit == "refuse":
                raise GolfError(f"{speed.warning} (launch.unfit=warn runs all the same).")
            log.warning(speed.warning)
            result.warnings.append(speed.warning)
        if self.services.prove is None:
            log.warning(NOT_PROVED)
            result.warnings.append(NOT_PROVED)
        else:
            failures += self.services.prove(cfg, state.ranks, self.dataset) if are_proved() else [UNPROVEN]
        # An optimizer that averages has weights of its own, and its next step undoes what is set at a switch.
        own = [t.name for t in techniques(cfg) if t.name in state.hooks.averagers and t.group_optimizers(cfg)]
        sets = [t.name for t in techniques(cfg) if "at_switch" in vars(type(t))]
        failures += [f"the optimizers of {one} undo what {two} sets at a switch" for one in own for two in sets]
        # The proofs are dealt out to the ranks, so each knows only its own failures.
        failures = list(dict.fromkeys(state.ranks.gather(failures)))
        result.warmup_seconds = time.perf_counter() - start
        for failure in failures:
            log.warning(f"check failed: {failure}")
        return failures

    def _prove_trained(self) -> list[str]:
        """Prove the scores of the trained weights, outside the clock, and return a sentence for every failure."""
        if self.services.prove_trained is None or not are_proved():
            return []
        self.log.display.update(1.0, "proving the scores of the trained weights")
        start = time.perf_counter()
        # Every rank holds the same weights.
        failures = self.services.prove_trained(self.cfg, self.state.final_weights(), self.dataset, self.ranks)
        failures = list(dict.fromkeys(self.ranks.gather(failures)))
        self.log.proved_trained(time.perf_counter() - start, failures)
        return failures

    def _code_bytes(self) -> int | None:
        """Return the bytes of the script that a submission would contain, which take seconds; None: unknown."""
        return self.services.code_bytes(self.cfg) if self.services.code_bytes else None

    def take_over(self, trained: Trained) -> Trained:
        """Return the record of an earlier start, with warnings about what has changed since.

        Raises `GolfError` if the data has.
        """
        result, cfg = trained.result, self.cfg
        if result.data_fingerprint != self.dataset.fingerprint:
            raise GolfError(
                f"{self.folder.path} was trained on data with fingerprint {result.data_fingerprint}, and the data is "
                f"{self.dataset.fingerprint} now: put the former data back, or give launch.fresh=true to start over."
            )
        here, changed = machine_kind(), list[str]()
        if trained.code != code_of(cfg):
            changed.append(OTHER_CODE_TRAINED)
        if (result.machine, trained.ranks) != (here, self.ranks.world_size):
            trained_on = f"{result.machine} by {counted(trained.ranks, 'rank')}"
            changed.append(f"trained on {trained_on}, and scored on {here} by {counted(self.ranks.world_size, 'rank')}")
        for warning in changed:
            self.log.warning(warning)
        result.name = cfg.name
        result.warnings = list(dict.fromkeys([*result.warnings, *self.folder.read_machine_warnings(), *changed]))
        self.log.finishing(result.steps, result.train_seconds)
        return trained

    def is_packed(self, trained: Trained) -> bool:
        """Tell, the same on every rank, whether the artifact on disk is that of `trained` and of this size of code."""
        found = False
        if self.ranks.is_first and trained.artifact and self.folder.artifact.exists():
            is_whole = checksum(self.folder.artifact.read_bytes()) == trained.artifact
            found = is_whole and trained.result.code_bytes == self._code_bytes()
        return bool(self.ranks.first(found))

    def train_and_pack(self, trained: Trained) -> None:
        """Train, unless an earlier start has, calibrate, and write the artifact."""
        cfg, ranks, log, state, result = self.cfg, self.ranks, self.log, self.state, trained.result
        checkpoints, tuning = None if trained.weights else self._checkpoints(result), None
        steps = checkpoints.start.step if checkpoints else result.steps
        # The loader skips the batches that a resumed run has seen. Calibration reads on where the training ends.
        with open_loader(cfg, self.dataset, ranks, after=state.stages.batches_taken(steps)) as loader:
            if checkpoints:
                training = self._train(trained, checkpoints, loader)
            else:
                training = Training(steps, result.train_seconds, result.train_loss, result.pre_quant, diverged=False)
            calibration = calibrate_trained(cfg, state, training, loader, self.dataset, log)
            result.calibration_seconds = calibration.seconds if calibration else None
            if cfg.quant.tune.steps > 0 and not training.diverged:
                # Making the script takes seconds that a submission does not need.
                room = self._code_bytes() or 0 if ranks.is_first else 0
                left = seconds_left(cfg, ranks.first(training.seconds) + (result.calibration_seconds or 0.0))
                tuning = tune_trained(cfg, state, left, calibration, loader, room, log)
                result.tune_seconds = tuning.seconds
        allocated, reserved = _peak_memory_mib(ranks.device)
        result.peak_memory_mib = max(allocated, result.peak_memory_mib or 0)
        log.peak_memory(allocated, reserved)
        if training.diverged:
            result.state, result.reason = DIVERGED, training.why_diverged()
            return

        trained.failures = list(dict.fromkeys([*trained.failures, *self._prove_trained()]))

        # Quantize, pack, write. Ranks hold the same weights, so the first one writes and the others wait for the file.
        log.display.update(1.0, "packing the artifact and scoring it")
        if ranks.is_first:
            weights = {name: tensor.detach().cpu() for name, tensor in state.final_weights().items()}
            hessians, coded = calibration.hessians if calibration else None, tuning.coded if tuning else None
            if (code := self._code_bytes()) is None:
                log.warning(UNKNOWN_CODE)
                result.warnings.append(UNKNOWN_CODE)
            _record_sizes(result, cfg, export(cfg, weights, code, self.folder, log, hessians, coded))
            trained.artifact = checksum(self.folder.artifact.read_bytes())
            write_trained(self.folder, trained)

    def _checkpoints(self, result: Result) -> Checkpoints:
        """Return the checkpoints of the run, after it has resumed from the last one, if there is one."""
        checkpoints = Checkpoints(self.cfg, self.folder, self.state, self.dataset.fingerprint)
        start = checkpoints.load()
        if start.step:
            self.state.switches.resume(start.active)
            self.state.stages.resume(start.stage_steps)
            self.log.resumed(start.step, start.train_seconds, start.train_loss)
            if checkpoints.is_of_other_code:
                self.log.warning(OTHER_CODE)
                result.warnings.append(OTHER_CODE)
        return checkpoints

    def _train(self, trained: Trained, checkpoints: Checkpoints, loader: Loader) -> Training:
        """Run the timed loop and write weights and record, so that the training is safe whatever comes after it."""
        cfg, state, log, result = self.cfg, self.state, self.log, trained.result
        listener = LoopListener(log.warning, checkpoints)
        training = train(cfg, state, loader, validation(state, self.scorer), log, listener)
        _record_training(result, cfg, training, state.stages)
        spent = listener.core_time()
        result.cpu_seconds, result.core_share = round(spent.cpu, 3), spent.share
        if said := starved(spent.share, result.train_seconds, cfg.budget.train_seconds):
            result.warnings.append(said)
            log.warning(said)
        for cause in listener.recompiles:
            warning = f"recompiled while the clock ran: {cause}"
            result.warnings.append(warning)
            log.warning(warning)
        if training.diverged:
            return training
        trained.failures += [*state.switches.never_on(), *state.stages.never_reached(), *state.hooks.idle_averages()]
        trained.stage_steps = list(state.stages.steps)
        if self.ranks.is_first:
            checkpoints.refuse_late()
            weights = weights_to_bytes(state.final_weights())
            trained.weights = checksum(weights)
            # The record first: once the weights have their name, the training is never repeated.
            write_trained(self.folder, trained)
            write_atomic(self.folder.weights, weights)
            sync_folder(self.folder.path)
        return training

    def score(self, trained: Trained) -> None:
        """Load the artifact from disk and score it: only what the file holds counts. Then judge the run."""
        cfg, log, result = self.cfg, self.log, trained.result
        start, meter = time.perf_counter(), CoreMeter()
        meter.start()
        weights = load(self.folder.artifact, by_its_run=True).state_dict()
        scores = score_artifact(cfg, weights, self.scorer, log)
        whole_seconds, mine = time.perf_counter() - start, meter.stop()
        result.eval_core_share = CoreTime(*self.ranks.sum(mine.cpu, mine.waited)).share
        result.post_quant, result.post_quant_sliding, result.post_quant_ttt = scores
        result.eval_seconds = counted_eval_seconds(cfg, result, whole_seconds)
        log.scoring_ended(result.eval_seconds)
        result.state = OK
        # Only the first rank knows the sizes, so it alone judges the run by its budget.
        if self.ranks.is_first:
            before, after = result.pre_quant, result.post_quant
            assert before is not None and after is not None and before.how == after.how
            result.quant_gap_bpb = after.val_bpb - before.val_bpb
            result.state, result.reason = budget_state(cfg, result)
        # The lowest one, because the last is not always the one that a leak is in.
        if said := implausible_score(min(score.val_bpb for score in scores if score), self.dataset):
            result.warnings.append(said)
            log.warning(said)
        if not all(score is None or math.isfinite(score.val_loss) for score in scores):
            result.state, result.reason = DIVERGED, "a score of the artifact is no number"
        if trained.failures:
            result.state, result.reason = VOID, "; ".join(trained.failures)


def are_proved() -> bool:
    """Tell whether runs are proved; GOLF_PROOFS=off makes them void."""
    return os.environ.get("GOLF_PROOFS") != "off"


def _first_result(cfg: Config, folder: RunFolder, dataset: Dataset, state: TrainState) -> Result:
    """Return a result with everything that is known before training."""
    return Result(
        name=cfg.name,
        variant_id=variant_id(cfg),
        seed=cfg.seed,
        machine=machine_kind(),
        warnings=folder.read_machine_warnings() + warnings(cfg),
        tech=list(cfg.tech),
        attention=state.attention,
        kernels=list(state.kernels),
        scale=cfg.scale.name,
        data_name=cfg.data.name,
        data_fingerprint=dataset.fingerprint,
        text_digest=dataset.text_digest,
        model_params=state.model_params,
    )


def _record_training(result: Result, cfg: Config, training: Training, stages: Stages) -> None:
    result.steps, result.train_seconds = training.steps, training.seconds
    result.tokens_seen = stages.tokens_after(training.steps)
    result.step_ms = 1000 * training.seconds / max(training.steps, 1)
    result.train_loss, result.pre_quant = training.train_loss, training.score
    result.budget_train_seconds = cfg.budget.train_seconds


def _record_sizes(result: Result, cfg: Config, sizes: Sizes) -> None:
    result.raw_model_bytes, result.artifact_bytes = sizes.raw_model_bytes, sizes.artifact_bytes
    result.code_bytes = sizes.code_bytes
    result.total_bytes = None if sizes.code_bytes is None else sizes.artifact_bytes + sizes.code_bytes
    result.cap_bytes = cfg.budget.artifact_bytes
    result.codec = codec_version(cfg.quant.codec)
    result.quantize_seconds, result.step_factor = sizes.seconds, sizes.step_factor


def _peak_memory_mib(device: torch.device) -> tuple[int, int]:
    """Return the allocated and the reserved peak on a GPU; on a CPU the process's peak resident memory twice."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) >> 20, torch.cuda.max_memory_reserved(device) >> 20
    resident = peak_memory_bytes() >> 20
    return resident, resident
