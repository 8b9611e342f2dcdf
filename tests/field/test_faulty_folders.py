"""Folders with one thing wrong: the audit names it in one sentence, and nothing else."""

import shutil
from pathlib import Path

import pytest

from golf.field.folder_audit import audit
from golf.settings.composition import rules_named
from tests.field.folders import (
    LARGEST,
    SCRIPT,
    SEEDS,
    Change,
    claims,
    in_file,
    in_logs,
    log_of,
    loss_of,
    train_log,
    write,
)

SIZE = len(SCRIPT)
STRICT = rules_named("strict")
BEST, MIDDLE = SEEDS[1337][0], SEEDS[42][0]


def again(folder: Path, name: str, new: str) -> None:
    (folder / name).write_text(new)


def remove(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        path.unlink()


def both(*changes: Change) -> Change:
    def run(folder: Path) -> None:
        for change in changes:
            change(folder)

    return run


def two_seeds_of(folder: Path) -> None:
    (folder / "train_seed7.log").unlink()
    mean = (BEST + MIDDLE) / 2
    claims(folder, seeds=[1337, 42], seed_results=..., val_bpb=mean, val_loss=loss_of(mean), val_bpb_std=...)


def best_three_of_five(folder: Path) -> None:
    for seed, bpb in ((11, 1.235), (12, 1.236)):
        again(folder, f"train_seed{seed}.log", train_log(seed, bpb))


def another_runs_logs(folder: Path) -> None:
    claims(folder, seed_results=...)
    for seed, (bpb, *_) in SEEDS.items():
        log_of(folder, seed, bpb + 0.016)


def one_seed_in_all_logs(folder: Path) -> None:
    claims(folder, seed_results=...)
    in_logs(folder, r"seed:\d+", "seed:1337")


def over_the_cap_in_mib(folder: Path) -> None:
    model = int(15.9 * 2**20) - SIZE
    log_of(folder, 42, model=model)
    claims(folder, bytes_total=model + SIZE, seed_results=...)


def claimed_over_the_cap(folder: Path) -> None:
    in_logs(folder, r"(?m)^(Serialized|Total|Code).*\n", "")
    claims(folder, bytes_total=16_200_000, seed_results=...)


def crashed(folder: Path) -> None:
    in_file(folder, "train_seed7.log", r"(?s)stopping_early.*", "torch.OutOfMemoryError: CUDA out of memory\n")


def code_beside(folder: Path) -> None:
    again(folder, "helper.py", "x = 1\n")
    write(folder, "import helper\n" + SCRIPT)


FAULTS: dict[str, tuple[Change, str]] = {  # what is done to a folder, what has to be said
    # against the rules
    "MiB taken for MB": (over_the_cap_in_mib, "over the cap of 16,000,000 by 672,358"),
    "over by claim": (claimed_over_the_cap, "bytes_total 16,200,000 is over the cap of 16,000,000 by 200,000"),
    "trained too long": (lambda f: log_of(f, 7, ms=612_345), "train_seed7.log: trained 612.3 s"),
    "scored too long": (
        both(lambda f: log_of(f, 7, eval_ms=655_000), lambda f: claims(f, seed_results=...)),
        "train_seed7.log: scoring took 655.0 s",
    ),
    "time by claim": (lambda f: claims(f, wallclock_seconds=655.1), "training took 655.1 s, the budget is 600 s"),
    "half the split": (lambda f: in_logs(f, "tokens:62021632", "tokens:31000000"), "scored as 75.51 MB of text"),
    "loss of another text": (
        both(lambda f: log_of(f, 7, loss=loss_of(SEEDS[7][0]) * 1.02), lambda f: claims(f, val_loss=2.08645)),
        "train_seed7.log: scored as 154.10 MB of text",
    ),
    # missing or unreadable
    "no script": (lambda f: (f / "train_gpt.py").unlink(), "there is no train_gpt.py"),
    "no README": (lambda f: (f / "README.md").unlink(), "there is no README.md"),
    "no claims": (lambda f: (f / "submission.json").unlink(), "there is no submission.json"),
    "misspelt": (lambda f: (f / "submission.json").rename(f / "subbmission.json"), "but subbmission.json: rename it"),
    "no logs": (lambda f: remove(f, "*.log"), "there is no train log"),
    "empty logs": (lambda f: [p.write_text("") for p in f.glob("*.log")], "there is no train log with a run in it"),
    "nothing": (lambda f: remove(f, "*"), "the folder is empty"),
    "a folder for a file": (
        both(lambda f: (f / "submission.json").unlink(), lambda f: (f / "submission.json").mkdir()),
        "submission.json is no file",
    ),
    "cut JSON": (lambda f: again(f, "submission.json", '{"author": "A", '), "submission.json is not JSON: Expecting"),
    "comma": (lambda f: in_file(f, "submission.json", r"\n}$", ",}"), "submission.json is not JSON"),
    "deep JSON": (lambda f: again(f, "submission.json", '{"a":' * 100_000), "submission.json is not JSON"),
    "a list": (lambda f: again(f, "submission.json", "[1, 2]"), "holds no JSON object"),
    "byte-order mark": (lambda f: in_file(f, "submission.json", r"^\{", "\ufeff{"), "begins with a byte-order mark"),
    "Latin-1": (lambda f: (f / "submission.json").write_bytes(b'{"author": "\xfc"}'), "is not UTF-8 (byte 13)"),
    "twice": (lambda f: in_file(f, "submission.json", r"^\{", '{"val_bpb": 1.2, '), "gives val_bpb twice"),
    "NaN": (lambda f: claims(f, val_bpb=float("nan")), "val_bpb is NaN, not a number"),
    "a number without a float": (lambda f: claims(f, bytes_total=10**400), "bytes_total"),
    "score as text": (lambda f: claims(f, val_bpb="1.2275"), 'val_bpb is "1.2275", not a number'),
    "bytes as text": (lambda f: claims(f, bytes_total="15.8 MB"), 'bytes_total is "15.8 MB", not a number'),
    "null": (lambda f: claims(f, val_bpb=None), "val_bpb is null, not a number"),
    "nobody": (lambda f: claims(f, author=...), "submission.json has no author"),
    "no score": (lambda f: claims(f, val_bpb=..., val_bpb_std=...), "submission.json has no val_bpb"),
    "crash": (crashed, "train_seed7.log: torch.OutOfMemoryError: CUDA out of memory"),
    "bad syntax": (lambda f: write(f, SCRIPT.replace("main():", "main(:")), "train_gpt.py is not Python"),
    "bad bytes": (lambda f: write(f, SCRIPT.encode().replace(b"A script", b"\xe9")), "cannot be read as UTF-8"),
    "NUL": (lambda f: write(f, SCRIPT + "\0"), "train_gpt.py is not Python"),
    "empty script": (lambda f: write(f, ""), "train_gpt.py is empty"),
    # claims that are not so
    "fourth decimal": (lambda f: claims(f, val_bpb=1.2271), "val_bpb 1.2271 is in no log"),
    "one decimal": (lambda f: claims(f, val_bpb=1.2), "val_bpb 1.2000 is in no log"),
    "best seed": (lambda f: claims(f, val_bpb=BEST), "is one run's, the best (train_seed1337.log): the mean of 3"),
    "best three of five": (best_three_of_five, "is of the best 3 of 5 runs"),
    "before quantization": (lambda f: claims(f, val_bpb=1.22042633), "is the score before quantization"),
    "loss": (lambda f: claims(f, val_loss=2.05), "val_loss 2.05 is in no log"),
    "population": (lambda f: claims(f, val_bpb_std=0.00114), "is the population's"),
    "spread": (lambda f: claims(f, val_bpb_std=0.0002), "is not the logs': their sample standard deviation is 0.00139"),
    "bytes of a smaller seed": (lambda f: claims(f, bytes_total=15_700_000), "below the largest run's"),
    "bytes of nothing": (lambda f: claims(f, bytes_total=15_900_000), "is no run's code and model"),
    "code bytes": (lambda f: claims(f, bytes_code=999), f"bytes_code is 999; the logs count {SIZE}, but train_gpt.py"),
    "script changed": (
        lambda f: in_file(f, "train_gpt.py", "A script", "Another"),
        f"bytes_code is {SIZE} as in the logs",
    ),
    "seed's steps": (lambda f: in_file(f, "submission.json", "13701", "13999"), "seed_results.42.steps is 13,999"),
    "missing log": (lambda f: (f / "train_seed7.log").unlink(), "names seed 7, of which there is no log"),
    "copied log": (lambda f: shutil.copy(f / "train_seed7.log", f / "train_seed42.log"), "are copies of one run"),
    "another seed in it": (lambda f: in_file(f, "train_seed7.log", "seed:7", "seed:42"), "2 logs print seed 42"),
    "one seed": (one_seed_in_all_logs, "3 logs print seed 1337"),
    "another run": (another_runs_logs, "is in no log: they say 1.242123"),
    "shards": (
        lambda f: in_file(f, "train_seed7.log", "train_shards:80", "train_shards:39"),
        "trained on 39, 80 shards",
    ),
    "README's mean": (lambda f: in_file(f, "README.md", r"val_bpb: [\d.]+", "val_bpb: 1.2154"), "says val_bpb 1.2154"),
    "README's seed": (lambda f: in_file(f, "README.md", r"\| 42 \| 1.2275", "| 42 | 1.2199"), "gives seed 42 a score"),
    "code beside": (code_beside, "train_gpt.py uses helper of the folder"),
}
NO_README_NUMBERS = {"another run", "one seed"}


@pytest.mark.parametrize("name", FAULTS)
def test_one_thing_wrong(tmp_path: Path, name: str) -> None:
    change, expected = FAULTS[name]
    write(tmp_path)
    if name in NO_README_NUMBERS:
        again(tmp_path, "README.md", "# N\n")
    change(tmp_path)
    faults = audit(tmp_path, None, STRICT).faults
    assert len(faults) == 1 and expected in faults[0], faults


def in_logs_folder(folder: Path) -> None:
    (folder / "logs").mkdir()
    for seed in SEEDS:
        (folder / f"train_seed{seed}.log").rename(folder / "logs" / f"log_{seed}.txt")


def much_beside(folder: Path) -> None:
    again(folder, "requirements.txt", "torch\n")
    (folder / "model.ptz").write_bytes(bytes(range(256)) * 50)
    (folder / "ablations").mkdir()
    again(folder, "ablations/no_ema_seed1337.log", train_log(1337, 1.24, ms=600_000))
    claims(folder, lineage="PR #1", extra={"lr": 0.02}, comparison_bpb=1.2244, delta_bpb=-0.0017, p_value="<0.001")
    (folder / "loop").symlink_to(folder)


def one_file(folder: Path) -> None:
    text = "".join((folder / f"train_seed{seed}.log").read_text() for seed in SEEDS)
    for seed in SEEDS:
        (folder / f"train_seed{seed}.log").unlink()
    again(folder, "train.log", text)


CLEAN: dict[str, Change] = {
    "as it is": lambda f: None,
    "rounded": lambda f: claims(f, val_bpb=1.2275, val_loss=2.0726, val_bpb_std=0.0014),
    "claims more exact than the logs": lambda f: in_logs(f, r"(?m)^final.*_exact.*\n|^DIAGNOSTIC.*\n", ""),
    "floats": lambda f: claims(f, bytes_total=float(LARGEST + SIZE), seeds=["1337", "42", "7"]),
    "a number of seeds": lambda f: claims(f, seeds=3),
    "logs elsewhere": in_logs_folder,
    "much beside it": much_beside,
    "logs in one file": one_file,
    "Windows": lambda f: again(f, "train_seed7.log", (f / "train_seed7.log").read_text().replace("\n", "\r\n")),
    "Windows script": lambda f: write(f, SCRIPT.replace("\n", "\r\n")),
    "script with a mark": lambda f: write(f, "\ufeff" + SCRIPT),
    "four hours": both(lambda f: claims(f, track="non_record_16mb"), lambda f: log_of(f, 7, ms=14_400_000)),
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_is_unusual_is_no_fault(tmp_path: Path, name: str) -> None:
    CLEAN[name](write(tmp_path))
    found = audit(tmp_path, None, STRICT)
    assert found.faults == [] and found.look_at == []


def test_what_is_only_to_be_looked_at(tmp_path: Path) -> None:
    for number, (change, expected) in enumerate(
        {
            two_seeds_of: "2 seeds in the logs: a record wants 3",
            (lambda f: claims(f, github_id=..., blurb="")): "has no github_id, blurb, which most",
            (lambda f: claims(f, hardware="8xH200")): "it ran on 8xH200",
            (lambda f: claims(f, val_bpb_std=0.00141)): "is not the logs'",
            (lambda f: in_file(f, "README.md", "# N", "val_bpb 1.2244 was the baseline's")): "says val_bpb 1.2244",
            (lambda f: again(f, "broken.log", "step:1/9 train_loss:6.9 train_time:1ms step_avg:1ms\n")): "broken.log",
        }.items()
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder)
        if change is two_seeds_of:
            again(folder, "README.md", "# N\n")
        change(folder)
        found = audit(folder, None, STRICT)
        assert found.faults == [] and len(found.look_at) == 1 and expected in found.look_at[0], found
