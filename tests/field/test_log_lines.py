"""Single lines: what they say, and what they must not be taken to say."""

from __future__ import annotations

import pytest

from golf.field.event_lines import NOISE, RULE, EventLine
from golf.field.figures import Figure, as_figure, parse_number, parse_seconds
from golf.field.log_lines import ScoreLine, SettingLine, SizeLine, StepLine, StopLine, read_line
from golf.field.scores import claimed_kind
from golf.field.text import without_prefix

NUMBERS = {"15,863,489": 15863489, "1_000": 1000, "1e3": 1000.0, " 1.1194 ± 0.0006": 1.1194, "~1.2": 1.2}
NUMBERS |= {"1.2 (mean)": 1.2, "1e999": float("inf"), "+.5": 0.5, "-3.": -3.0}
NO_NUMBERS = ["12,34", "1.2.3", "15.9MB", "", "TBD", "1e", "5" * 400, "0x10"]


@pytest.mark.parametrize("text", [*NUMBERS, *NO_NUMBERS])
def test_numbers(text: str) -> None:
    assert parse_number(text) == NUMBERS.get(text)


def test_numbers_that_are_none() -> None:
    assert str(parse_number("nan")) == "nan" and parse_number("info") is None
    assert as_figure(True, "") is None and as_figure([1], "") is None and as_figure(10**40, "") is None
    assert parse_seconds("600038ms") == 600.038 and parse_seconds("9.5m") == 570 and parse_seconds("9") is None


def test_a_figure_agrees_with_what_it_can_be_rounded_or_cut_from() -> None:
    figure = Figure(1.2271, "", "1.2271")
    assert figure.agrees_with(1.22709710) and figure.agrees_with(1.22719) and not figure.agrees_with(1.2272)
    assert Figure(15900947, "", "15900947").agrees_with(15900947) and not Figure(5.0, "", "5").agrees_with(6)


STEPS = {
    "step:5/20 train_loss:2.5 train_time:100ms step_avg:20.00ms": StepLine(5, 20, 0.1, 20.0, 2.5),
    "step:5/20 train_loss:2.5 lr_mul:0.5 train_time:100ms": StepLine(5, 20, 0.1, None, 2.5),
    "[PHASE2] step:5/20 train_loss:2.5 train_time:100ms step_avg:20.00ms tok/s:3": StepLine(5, 20, 0.1, 20.0, 2.5),
    "5/20 train_loss: 2.5 train_time: 0.8m tok/s: 8217810 looping:True": StepLine(5, 20, None, None, 2.5),
    "5/20 val_loss: 2.5 val_bpb: 1.25": StepLine(5, 20, val_loss=2.5, val_bpb=1.25, bpb_text="1.25"),
    "step:5/20 loss:2.5 jepa:1.0 sigreg:2.0 ce:1.5 t:100ms step_avg:20.0": StepLine(5, 20, 0.1, None, 2.5),
    "step:5/20 val_loss:2.5 train_time:100ms step_avg:20.00ms val_bpb:1.25": StepLine(
        5, 20, 0.1, 20.0, None, 2.5, 1.25, "1.25"
    ),
    "step:1,005/20,000 train_loss:inf train_time:100ms": StepLine(1005, 20000, 0.1, None, float("inf")),
    "step 4980 loss=4.9062  lr=2.00e-05  31.5ms/step": StepLine(4980, None, None, 31.5, 4.9062),
}


@pytest.mark.parametrize("text", STEPS)
def test_steps(text: str) -> None:
    assert read_line(text) == STEPS[text]


OTHERS = {
    "stopping_early: wallclock_cap train_time: 599592ms step: 4945/20000": StopLine("wallclock_cap", 599.592, 4945),
    "stopping_early: wallclock_cap": StopLine("wallclock_cap", None, None),
    "Serialized model: 67224983 bytes": SizeLine((("raw", "", 67224983),)),
    "Serialized model int6+zstd-22: 15,463,854 bytes (payload:1 raw_torch:2 payload_ratio:3.8x)": SizeLine(
        (("artifact", "int6+zstd-22", 15463854),)
    ),
    "Code size (compressed): 31999 bytes": SizeLine((("code", "compressed", 31999),)),
    "Total submission size: 67272625 bytes": SizeLine((("total", "", 67272625),)),
    "budget:15992753/16000000 (15.99/16.00MB) FITS": SizeLine((("total", "", 15992753),)),
    "artifact:15.60MB binary:1(2B) fp:3(4B) code:70853": SizeLine((("code", "", 70853),)),
    "  seed: 42": SettingLine({"seed": "42"}),
    "lr:embed=0.035 batch:786432 wall:600s seed:42": SettingLine({"max_wallclock_seconds": "600", "part_seed": "42"}),
    "total_eval_time:508.8s": EventLine("eval_clock", "508.8s"),
    "final_eval_mode:sliding_window stride:64 batch_seqs:32": EventLine("sliding_mode", "64"),
    "=" * 100: RULE,
    "ttp: b754/782 bl:2.7 bb:1.05 rl:2.71 rb:1.06 dl:100-200 gd:0": NOISE,
    "  ttt_chunk [11/60] bpb=0.925699 time=69.1s": NOISE,
    "sliding_eval [ 50.0%] 10/20 windows running_bpb=1.2": NOISE,
    "mtp_params:0 data_seed: 3 muon_matrix_params:54": NOISE,
    "INT4+fp8+brotli: 15.67MB model + 0.077MB code": SizeLine(
        (("artifact", "INT4+fp8+brotli", 15_670_000), ("code", "", 77_000)), unit=10_000
    ),
    "It was a dark and stormy night": None,
    "final_bpb: 1.1234": None,
}


@pytest.mark.parametrize("text", OTHERS)
def test_other_lines(text: str) -> None:
    assert read_line(text) == OTHERS[text]


SCORES = {
    "final_int6_sliding_window val_loss:1.9 val_bpb:1.1 stride:64 eval_time:86085ms": (1.1, 86.085, 64),
    "final_sliding val_loss:2.9 val_bpb:1.1 (stride=16, T=0.90) time:429020ms": (1.1, 429.02, 16),
    "final_int6_sliding_window stride:128 val_loss:1.9 val_bpb:1.1": (1.1, None, 128),
    "ttt_sliding:done val_loss=1.9 val_bpb=1.1 elapsed=407.5s": (1.1, 407.5, None),
    "diagnostic pre-quantization post-ema val_loss:2.3 val_bpb:1.1 eval_time:6718ms": (1.1, 6.718, None),
    "val_bpb:          1.12278022": (1.12278022, None, None),
}


@pytest.mark.parametrize("text", SCORES)
def test_scores(text: str) -> None:
    line = read_line(text)
    assert isinstance(line, ScoreLine) and (line.val_bpb, line.seconds, line.stride) == SCORES[text]
    assert text.startswith(line.tag) and "val_" not in line.tag and "stride" not in line.tag


TAGS = {
    "post_quant": "final_int8_zlib_roundtrip_exact,quantized,diagnostic quantized,final_mixed_quant_zlib_roundtrip,"
    "timed_eval_int6,final,final_int6_ema_roundtrip",
    "pre_quant": "timed_eval_bf16,DIAGNOSTIC post_ema,pre-quantization post-ema,trained_validation_exact",
    "sliding": "quantized_sliding_window,final_int6_sliding_window_s64_exact,sliding_window_eval",
    "ttt": "legal_ttt_exact,final_int8_ttt_lora,quantized_ttt_phased,final_slot",
    "mixed": "final_int6_sliding_window_ngram7_exact,final_ppm",
    "other": "pre_quant_sliding,post-prequant-ttt,baseline,best,Record to beat:,improvement,",
}


@pytest.mark.parametrize(("kind", "tag"), [(kind, tag) for kind, tags in TAGS.items() for tag in tags.split(",")])
def test_tags(kind: str, tag: str) -> None:
    assert claimed_kind(tag) == kind


PREFIXES = {
    "[rank0]: step:1/2": ("step:1/2", 0),
    "[default3]:step:1/2": ("step:1/2", 3),
    "7: step:1/2": ("step:1/2", 7),
    "[rank1]:[W318 14:38:18.8 Utils.hpp:112] Warning": ("[W318 14:38:18.8 Utils.hpp:112] Warning", 1),
    "1776142360.713 Code size: 1 bytes": ("Code size: 1 bytes", None),
    "2026-04-01T10:00:00Z step:1/2": ("step:1/2", None),
    "trainer-0  | step:1/2": ("step:1/2", None),
    "golf-1  | Code size: 1 bytes": ("Code size: 1 bytes", None),
    "INFO:root:legal_ttt val_bpb:1.1": ("legal_ttt val_bpb:1.1", None),
    "INFO:step:1/2": ("step:1/2", None),
    "12:00:01 | INFO | Code size: 1 bytes": ("Code size: 1 bytes", None),
    "2026-04-01 12:00:01,123 INFO train_gpt.py:312 seed:7": ("seed:7", None),
    "2026-04-01 12:00:01.123 | INFO     | __main__:main:312 - Code size: 1 bytes": ("Code size: 1 bytes", None),
    "2026-04-01 12:00:01 world_size:8 grad_accum_steps:1": ("world_size:8 grad_accum_steps:1", None),
    "5/20 val_loss: 2": ("5/20 val_loss: 2", None),
}


@pytest.mark.parametrize("line", PREFIXES)
def test_prefixes(line: str) -> None:
    assert without_prefix(line) == PREFIXES[line]
