"""The settings of what starts and accompanies runs: launcher, cluster, sweep and tracking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from golf.settings.fields import among, later, number, one_of


@dataclass
class LaunchConfig:
    """Processes, device and supervision of a run."""

    nproc: int = number(1, at_least=1)  # ranks per machine; one rank on one machine runs in the calling process
    nodes: int = number(1, at_least=1)  # machines per run; more than one only in a Slurm job
    device: str = one_of("auto", "cpu", "cuda", "mps")  # device of the ranks; mps: Apple's GPU, unproven
    # compilation; blocks: every block by itself, for a short start | full: the whole model as one graph
    compile: str = one_of("auto", "off", "blocks", "full")
    # loss in training; torch: by its operations | triton: by our kernel, where it is equal and faster at the start |
    # auto: triton on a GPU, torch elsewhere
    loss_kernel: str = later(one_of("torch", "triton", "auto"))
    # MLPs in training; torch: by its operations | triton: by our kernel, where it is equal and faster at the start |
    # auto: triton on a Hopper GPU, torch elsewhere
    mlp_kernel: str = later(one_of("torch", "triton", "auto"))
    threads: int | None = number(None, at_least=0)  # CPU threads per rank; null = cores / nproc
    # steps between log lines; steps 1-10 are always logged, with 0 they alone
    train_log_every: int = number(200, at_least=0)
    # runs of a sweep at the same time; null = one for every `nproc` GPUs, or cores / threads on a CPU
    jobs: int | None = number(None, at_least=1)
    fresh: bool = False  # repetition of a sweep's finished runs; unfinished ones leave their checkpoints alone
    # training time in seconds between checkpoints for resuming; 0 = none, null = 600 for a run without a clock
    checkpoint_seconds: float | None = number(None, at_least=0)
    # untimed steps for comparing the speed with earlier runs; null = 30 on a GPU, 0 on a CPU
    speed_steps: int | None = number(None, at_least=0)
    unfit: str = one_of("warn", "refuse")  # reaction to a slow or busy machine


@dataclass
class ClusterConfig:
    """The cluster that `golf submit` submits to. `auto` settings are chosen for its GPUs."""

    name: str = "local"
    executor: str = one_of("local", "slurm", "ssh")  # submitit's, or ssh: a machine that ssh reaches
    nodes: int = number(1, at_least=1)  # machines per run; becomes launch.nodes
    gpus: int = number(0, at_least=0)  # GPUs and ranks per machine; 0 = a CPU run of launch.nproc ranks
    gpu_name: str = ""  # name of the GPU as torch reports it
    cpus_per_rank: int = number(1, at_least=1)  # CPU cores per rank
    # time limit of a job: ten minutes of training, and loading, compiling, quantizing, scoring
    minutes: int = number(45, at_least=1)
    at_once: int = number(16, at_least=1)  # jobs of a sweep that run at the same time
    signal_seconds: int = number(120, at_least=0)  # notice before the time limit, in seconds
    requeues: int = number(3, at_least=0)  # most times that a stopped job is queued again
    dollars_per_gpu_hour: float = number(0.0, at_least=0)  # price for the estimate that is printed before submitting
    setup: list[str] = field(default_factory=list)  # shell lines before the run: modules, containers, environments
    sbatch: dict[str, Any] = field(default_factory=dict)  # other fields of sbatch: partition, account, qos, …
    host: str = later("")  # executor=ssh: the machine as user@address:port; ssh's own names work, too
    ssh: str = later("ssh")  # ssh with its options, such as ssh -i KEY
    folder: str = later("golf")  # folder of code, data and runs on that machine, seen from its home
    python: str = later("python3")  # Python there, after the lines of setup
    # shell command that gets the data there, in a folder with golf's code, such as golf data get; "" = sent if small
    data: str = later("")
    data_mb: int = later(number(500, at_least=0))  # largest data that are sent, in millions of bytes
    # time without an answer after which runs of that machine are lost and go elsewhere
    lost_minutes: float = later(number(10.0, at_least=0))
    done: str = later("")  # shell command that runs here once all results are home, such as one that stops the machine


@dataclass
class SweepConfig:
    """The relation between the runs of a sweep; conf/sweep/ lists the runs."""

    # kind of the sweep; null = inferred from the settings that vary
    kind: str | None = one_of(None, "grid", "seeds", "leave_one_out", "add_one", "interaction")
    # reference of tables; first: the sweep's first variant | null = inferred from the kind
    reference: str | None = one_of(None, "first", "none")
    # end of the sweep; all: every run that it lists | decided: rounds of one seed until every variant is decided
    until: str = later(one_of("all", "decided"))
    max_seeds: int = later(number(10, at_least=2, at_most=100))  # rounds at most; a list of seeds says it, too
    max_runs: int | None = later(number(None, at_least=2))  # no round begins that would take the sweep beyond it
    # improvement worth finding in bits per byte; null = what the last round finds with the rules' power
    effect_bpb: float | None = later(number(None, above=0))
    # question of the rounds; better: is a variant better than the reference? | worse: is it worse, which says that the
    # reference needs what the variant leaves out | null = worse for leave_one_out, else better
    asks: str | None = later(one_of(None, "better", "worse"))


@dataclass
class TrackConfig:
    """A mirror of the run folder, by a process of its own so that it cannot hold up the training."""

    backend: str = one_of("none", "wandb")  # service that receives the mirror; wandb: Weights & Biases
    # upload; offline: recorded here and uploaded later | auto: online where a W&B key is found, else offline
    mode: str = one_of("auto", "online", "offline", "disabled")
    project: str = "golf"  # W&B project
    entity: str | None = None  # W&B team or user; null = the key's own
    group: str | None = None  # group of runs in charts; null = the variant
    tags: list[str] = field(default_factory=list)  # tags besides scale, data and techniques
    # files to upload
    attach: list[str] = field(default_factory=list, metadata=among("config", "log", "curves", "artifact"))
    system_metrics: bool = True  # samples of CPU and GPU use every 15 s
    init_seconds: float = number(20.0, above=0)  # time to wait for the server before recording offline
    finish_seconds: float = number(30.0, above=0)  # time that the command waits for the upload after the run


def is_tracked(track: TrackConfig) -> bool:
    """Tell whether the run is mirrored."""
    return track.backend != "none" and track.mode != "disabled"
