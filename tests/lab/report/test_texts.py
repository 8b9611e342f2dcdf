"""No verdict across texts: what bytes prove, rows of imports, published scores, and seeds on two texts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from golf.challenge import OLDER_SPLIT_BYTES, VALIDATION_BYTES
from golf.errors import GolfError
from golf.field.import_store import import_folders, record, store
from golf.files import write_json
from golf.lab.report.comparison import check_published_text
from golf.lab.report.findings import judged
from golf.lab.report.imported_rows import rows_of_record
from golf.lab.report.remarks import remarks_on
from golf.lab.report.rows import row_of_result
from golf.lab.report.study import read_study
from golf.lab.report.texts import FINEWEB, OLDER_FINEWEB
from golf.lab.report.verdicts import BETTER, NO_VERDICT, judge
from golf.run.result import to_json
from golf.settings.config import Config, DataConfig, RulesConfig
from tests.field.imports import TOKENS, log
from tests.lab.report.runs import finished, score, variant, write_lr_sweep, write_run
from tests.support import golf_command

HOUSE = RulesConfig()
OLDER = {"tokens": 63_779_840}


def keep(root: Path, name: str, logs: dict[str, str]) -> None:
    """Import a submission of these logs into the store under `root`."""
    folder = root / "their" / name
    folder.mkdir(parents=True)
    for file, text in logs.items():
        (folder / file).write_text(text)
    (found,) = import_folders([folder])
    store(record(found), root)


def seeds(bpb: float, **changes: Any) -> dict[str, str]:
    """Return logs of three seeds around `bpb`; loss and tokens are of the older export if `changes` say so."""
    logs = {}
    for seed, noise in ((1, -0.0005), (2, 0.0), (3, 0.0006)):
        is_older = changes == OLDER
        size, tokens = (OLDER_SPLIT_BYTES, OLDER["tokens"]) if is_older else (VALIDATION_BYTES, TOKENS)
        loss = (bpb + noise) * math.log(2) * size / tokens
        logs[f"train_seed{seed}.log"] = log(seed, bpb + noise, **{"loss": loss, "steps": 13_000 + seed, **changes})
    return logs


def test_an_own_run_on_another_text_is_not_compared_with_an_import(runs: Path) -> None:
    """An own run on embedded documents was "worse, p < 0.0001" than a record on FineWeb."""
    keep(runs, "record", seeds(1.2))
    for seed, bpb in enumerate((1.02, 1.0203, 1.0207), start=1):
        write_run(runs, Config(), bpb, seed)
    own = next(path for path in runs.iterdir() if path.name.startswith(Config().name))
    findings = judged(read_study([str(own), "record"], reference="record"), HOUSE)
    (verdict,) = findings.verdicts.values()
    assert verdict.kind == NO_VERDICT and verdict.difference_bpb is None
    assert verdict.reason.startswith("not comparable: another text than the reference's: ")
    assert verdict.reason.endswith(": the text of the data abcd, not FineWeb validation, 151.08 MB")
    assert findings.best is None, "nothing compares with the reference"


def test_the_older_export_is_another_text(runs: Path) -> None:
    keep(runs, "old", seeds(1.2, **OLDER))
    keep(runs, "new", seeds(1.19))
    study = read_study(["old", "new"])
    assert [v.texts for v in study.variants] == [{OLDER_FINEWEB}, {FINEWEB}]
    (verdict,) = judged(study, HOUSE).verdicts.values()
    assert verdict.kind == NO_VERDICT and "older export" in verdict.reason


def test_unknown_against_known_is_no_verdict_and_unknown_against_unknown_says_so(runs: Path) -> None:
    keep(runs, "known", seeds(1.2))
    for name, bpb in (("unknown", 1.1), ("alike", 1.15)):
        keep(runs, name, seeds(bpb, tokens="some"))
    (verdict,) = judged(read_study(["known", "unknown"]), HOUSE).verdicts.values()
    assert verdict.kind == NO_VERDICT and "a text that is not known" in verdict.reason
    findings = judged(read_study(["unknown", "alike"]), HOUSE)
    assert [v.kind for v in findings.verdicts.values()] == ["worse"]
    assert any("No run tells which text" in line for line in remarks_on(findings))


def test_imports_on_one_text_are_compared_and_the_text_is_named(runs: Path) -> None:
    keep(runs, "a", seeds(1.2))
    keep(runs, "b", seeds(1.18))
    findings = judged(read_study(["a", "b"]), HOUSE)
    assert [v.kind for v in findings.verdicts.values()] == ["better"]
    assert f"Scored on: {FINEWEB}." in remarks_on(findings)


def test_a_log_without_its_tokens_has_the_text_of_its_sibling(runs: Path) -> None:
    logs = seeds(1.2)
    logs["train_seed2.log"] = logs["train_seed2.log"].replace("tokens:62021632", "")
    keep(runs, "a", logs)
    (found,) = read_study(["a"]).variants
    assert found.texts == {FINEWEB} and found.mean("final") == pytest.approx(1.2 + 0.0001 / 3)
    logs["train_seed2.log"] = logs["train_seed2.log"].replace("val_loss", "loss_of_validation")
    keep(runs, "b", logs)
    (mixed,) = read_study(["b"]).variants
    assert mixed.texts == {FINEWEB, None} and mixed.mean("final") is None
    assert judge([mixed], 1.2244, HOUSE)[mixed.id].reason == (
        "not comparable: not all of its seeds tell which text they were scored on"
    )


def test_parts_of_the_split_are_shared_within_a_submission_only(runs: Path) -> None:
    keep(runs, "a", seeds(1.2, tokens=1_000_000))
    keep(runs, "b", seeds(1.1, tokens=1_000_000))
    study = read_study(["a", "b"])
    assert [v.texts for v in study.variants] == [
        {f"another text of 1,000,000 tokens ({name})"} for name in ("a", "b")
    ]  # fmt: skip
    assert study.variants[0].mean("final") is not None
    assert [v.kind for v in judged(study, HOUSE).verdicts.values()] == [NO_VERDICT]


@pytest.mark.parametrize(("size", "text"), [(VALIDATION_BYTES, FINEWEB), (OLDER_SPLIT_BYTES, OLDER_FINEWEB)])
def test_an_own_count_of_bytes_proves_the_text(size: int, text: str) -> None:
    whole = replace(score(1.2), bytes=size + 900, tokens=TOKENS)
    values = to_json(finished(Config(), 1.2, 1, post_quant=whole))
    assert row_of_result(values).data == text
    assert row_of_result(values | {"data_fingerprint": "another shard"}).data == text
    assert row_of_result(to_json(finished(Config(), 1.2, 1))).data == "abcd"
    assert row_of_result(to_json(finished(Config(), 1.2, 1, data_fingerprint=""))).data is None


def test_a_record_of_before_texts_were_kept_is_of_an_unknown_text(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(log())
    (found,) = import_folders([tmp_path])
    values = record(found)
    for name in ("scored_text", "sliding_how", "ttt_how"):
        values["runs"][0]["texts"].pop(name, None)
    (row,) = rows_of_record(values)
    assert row.data is None and row.val_bpb == 1.2


SLIDING = "final_int6_sliding_window_exact val_loss:1.9 val_bpb:{:.8f} stride:{}\n"


def test_sliding_scores_of_two_strides_are_not_compared(runs: Path) -> None:
    """The way was kept of the final score only, so `--score sliding` compared stride 64 with stride 512."""
    for name, bpb, stride in (("a", 1.2, 64), ("b", 1.19, 512), ("c", 1.18, 64)):
        keep(
            runs,
            name,
            {f: t + SLIDING.format(bpb - 0.02 + i / 1e4, stride) for i, (f, t) in enumerate(seeds(bpb).items())},
        )
    findings = judged(read_study(["a", "b", "c"]), HOUSE, score="sliding")
    kinds = [v.kind for v in findings.verdicts.values()]
    assert kinds == [NO_VERDICT, "better"]
    reason = next(iter(findings.verdicts.values())).reason
    assert reason == "not comparable: scored by sliding window, stride 512, not sliding window, stride 64"


def test_a_published_score_asks_for_its_text(runs: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286, 1.2279], 0.02: [1.2230, 1.2238]})
    older = golf_command("report", "lr", "--against", "1.2244").stderr
    assert "older export, 155.77 MB; on today's split it is 1.2271: give that one" in older
    done = golf_command("report", "lr", "--against", "1.2271")
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    for part in ("FineWeb validation, 151.08 MB", "the text of the data abcd", "--text own", "--text older"):
        assert part in done.stderr
    assert "against the published 1.2244" in golf_command("report", "lr", "--against", "1.2244", "--text", "own").stdout
    assert golf_command("report", "lr", "--against", "1.2244", "--text", "older").returncode == 2


def test_runs_on_the_split_need_no_word_about_it() -> None:
    found = variant("a", [1.1, 1.1001], data=FINEWEB)
    check_published_text([found], 1.2244, "fineweb")
    with pytest.raises(GolfError, match="older export"):
        check_published_text([found], 1.2244, "older")
    unknown = variant("b", [1.1, 1.1001], data=None)
    with pytest.raises(GolfError, match="a text that is not known"):
        check_published_text([found, unknown], 1.2244, "fineweb")


def test_an_unknown_variant_among_known_ones_has_no_verdict_against_a_number() -> None:
    variants = [variant("a", [1.1, 1.1001], data=FINEWEB), variant("b", [1.1, 1.1001], data=None)]
    found = judge(variants, 1.2244, HOUSE)
    assert {v.kind for v in found.values()} == {NO_VERDICT} and "not all variants tell" in found["a"].reason


def test_a_damaged_text_is_a_row_that_says_so(runs: Path) -> None:
    keep(runs, "a", seeds(1.2))
    write_json(runs / "imported" / "a" / "import.json", {"runs": [{"texts": None}], "faults": []})
    (found,) = read_study(["a"]).variants
    assert [row.state for row in found.rows] == ["unreadable"]


@pytest.mark.parametrize("digest", ["97a033e8293c3ef8", None])
def test_two_tokenizers_compare_if_they_score_one_text(runs: Path, digest: str | None) -> None:
    for seed in (1, 2, 3):
        for fingerprint, vocab_size, bpb in (("plain", 1024, 2.1), ("larger", 4096, 2.0)):
            cfg = replace(Config(), data=DataConfig(vocab_size=vocab_size))
            found = replace(score(bpb + seed / 1000), tokens=100 * vocab_size)
            told: dict[str, Any] = {"data_fingerprint": fingerprint, "text_digest": digest, "post_quant": found}
            write_run(runs, cfg, bpb, seed, **told)
    study = read_study([path.name for path in runs.iterdir()])
    worst = max(study.variants, key=lambda variant: variant.mean("final") or 0)
    findings = judged(replace(study, reference=worst), HOUSE)
    (verdict,) = findings.verdicts.values()
    if digest:
        assert verdict.kind == BETTER and verdict.difference_nats is None
        sentences = " ".join(remarks_on(findings))
        assert "is found 80% of the time" in sentences and "nats per token" not in sentences
    else:
        assert verdict.kind == NO_VERDICT and "eval.documents=true scores one text alike" in verdict.reason
