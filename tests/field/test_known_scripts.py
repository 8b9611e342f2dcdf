"""A script whose functions are all a known one's is its preset; what differs in it is named."""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import pytest

from golf.field import known_scripts as module
from golf.field.known_scripts import (
    TABLE,
    KnownScript,
    Likeness,
    entries,
    known_scripts,
    likeness,
    on_preset,
    unsettled,
)
from golf.field.script_digests import digests
from golf.field.script_reader import parsed_script
from golf.field.script_translation import translated_script
from golf.field.script_variables import variables_of_script
from golf.run.identity import identity
from golf.settings.composition import compose
from tests.support import ROOT

PRESET = "records/2026-03-18_fp16_embed_wd3600"
SCRIPT = """import os


class Hyperparameters:
    matrix_lr = float(os.environ.get("MATRIX_LR", 0.06))
    mlp_hidden = int(os.environ.get("MLP_HIDDEN", 992))
    warmdown_iters = int(os.environ.get("WARMDOWN_ITERS", 3600))
    rows_kept = int(os.environ.get("ROWS_KEPT", 3))
    doubles = bool(int(os.environ.get("DOUBLES", "0")))


def kept(name):
    return name == "tok_emb.weight"


def rounded(t, scale: float = 1.0):
    return (t / scale).round()


def first(h):
    return [h.matrix_lr, h.mlp_hidden, h.warmdown_iters]


def second(h):
    if h.doubles:
        return 2
    print(f"keeps {h.rows_kept}")
    total = len(first(h))
    return h.rows_kept + total


h = Hyperparameters()
print(second(h), kept(f"{h}"), rounded(1.0))
"""
MUTANTS = {  # what a relative may have otherwise, and the function that is named for it
    "scale).round()": "rounded",
    '== "tok_emb.weight"': "kept",
    "h.rows_kept + total": "second",
}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> KnownScript:
    script = variables_of_script(parsed_script(SCRIPT), "x")
    assert script.tree is not None
    monkeypatch.setattr(module, "known_scripts", lambda: ())
    plain = translated_script("", script).translation
    settled = dict(text.split("=") for text in plain.inexpressible)
    own = KnownScript("ours", PRESET, entries(script.tree, script.defaults), settled, tuple(plain.overrides))
    monkeypatch.setattr(module, "known_scripts", lambda: (own,))
    return own


def test_a_known_script_is_its_preset(known: KnownScript) -> None:
    found = translated_script("", variables_of_script(parsed_script(SCRIPT), "x"))
    assert found.missing == [] and found.record == PRESET
    assert identity(compose(found.overrides)) == identity(compose([f"experiment={PRESET}", "scale=record"]))


def compared(text: str) -> Likeness:
    script = variables_of_script(parsed_script(text), "x")
    assert script.tree is not None
    found = likeness(script.tree, script.defaults)
    assert found is not None
    return found


EQUAL = {  # what a relative may have otherwise without any effect
    "keeps {h": "it keeps {h",
    "scale: float = 1.0": "scale=1.0",
    "\n\n\ndef kept": "\nKEPT = (3, 'no one reads it')\n\n\ndef kept",
    "import os\n": "import os\ntry:\n    import fast as slow\nexcept ImportError:\n    import slow\n",
    "    return [h.matrix_lr": "    assert h\n    if not h:\n        raise ValueError(h)\n    return [h.matrix_lr",
    "    total = len(first(h))": "    t = time.time()\n    log(time.time() - t)\n    total = len(first(h))",
    "    total = len(first(h))\n    return h.rows_kept + total": "    n = len(first(h))\n    return h.rows_kept + n",
    "    return h.rows_kept +": "    for i in range(3):\n        print(i)\n    return h.rows_kept +",
    # Parts that the variables of either script have off.
    "    if h.doubles:\n        return 2\n": "",
    "    total = len": '    if int(os.environ.get("TRIPLES", 0)) > 1:\n        return kept(h)\n    total = len',
    "\n\nh = ": "\n\ndef never_called(x):\n    return x\n\n\nh = ",
}


@pytest.mark.parametrize("before", EQUAL)
def test_what_changes_nothing_is_no_difference(before: str, known: KnownScript) -> None:
    assert SCRIPT.count(before) == 1 and compared(SCRIPT.replace(before, EQUAL[before])).differing == ()


OTHERS = {  # what looks like the above and has an effect, and the function that is named for it
    "    total = len(first(h))": ("    total = len(first(h)) + len(kept(h))", "second"),
    "    if h.doubles:\n        return 2\n": ("    if h.matrix_lr:\n        return 2\n", "second"),
    '    doubles = bool(int(os.environ.get("DOUBLES", "0")))\n': (
        '    doubles = bool(int(os.environ.get("DOUBLES", "1")))\n',
        "",  # a variable, which is compared as a value
    ),
    "    return [h.matrix_lr": ("    h.matrix_lr = 1\n    return [h.matrix_lr", "first"),
    "    return h.rows_kept + total": ("    from other import rounded\n    return h.rows_kept + total", "rounded"),
    "return (t / scale)": ("return (scale / t)", "rounded"),
    "\n\nh = ": ("\n\nif Hyperparameters.rows_kept > 2:\n    def first(h):\n        return [1]\n\n\nh = ", "first"),
    "\n\ndef first(h)": ("\nif Hyperparameters.rows_kept > 2:\n    KEPT = seed(3)\n\n\ndef first(h)", "KEPT"),
    "    return name ==": ("    if name:\n        raise StopIteration\n    return name ==", "kept"),
}


@pytest.mark.parametrize("before", OTHERS)
def test_what_looks_alike_and_has_an_effect_is_named(before: str, known: KnownScript) -> None:
    after, name = OTHERS[before]
    assert SCRIPT.count(before) == 1
    found = translated_script("", variables_of_script(parsed_script(SCRIPT.replace(before, after)), "x"))
    assert (found.missing and name in compared(SCRIPT.replace(before, after)).differing) or not name
    assert name or "DOUBLES=1" in found.missing[0]


def test_a_part_that_the_record_has_on_is_missed_where_a_script_lacks_its_variable(
    known: KnownScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = SCRIPT.replace('"DOUBLES", "0"', '"DOUBLES", "1"')
    script = variables_of_script(parsed_script(on), "x")
    assert script.tree is not None
    own = KnownScript("ours", PRESET, entries(script.tree, script.defaults), {}, ())
    monkeypatch.setattr(module, "known_scripts", lambda: (own,))
    always = on.replace("    if h.doubles:\n        return 2\n", "    return 2\n")
    always = always.replace('    doubles = bool(int(os.environ.get("DOUBLES", "1")))\n', "")
    assert compared(on).differing == () and compared(always).differing == ("second",)


def test_a_function_that_no_known_script_has_is_named_whatever_the_marks_say(known: KnownScript) -> None:
    other = (
        "import os\nRATE = float(os.environ.get('MATRIX_LR', 0.04))\n\n\ndef own(x):\n    return x + 1\n\n\nown(RATE)\n"
    )
    missing = translated_script("", variables_of_script(parsed_script(other), "x")).missing
    assert len(missing) == 2 and "no known script has these functions" in missing[0] and "own statements" in missing[0]


def test_own_names_are_renamed_and_those_of_parameters_are_not() -> None:
    def digest(text: str) -> str:
        return digests(ast.parse(text))["f"]

    outer = "def f(a):\n    {0} = a\n    def g(x):\n        return {1}\n    return g(1) + {0}\n"
    assert digest(outer.format("y", "y")) == digest(outer.format("z", "z"))
    assert digest(outer.format("x", "x")) != digest(outer.format("y", "y")) != digest(outer.format("y", "x"))
    assert digest("def f(a, b):\n    return a\n") != digest("def f(a, b):\n    return b\n")


@pytest.mark.parametrize("before", MUTANTS)
def test_a_function_that_differs_is_named(before: str, known: KnownScript) -> None:
    found = translated_script("", variables_of_script(parsed_script(SCRIPT.replace(before, before + " * 2")), "x"))
    assert found.record is None or any(f"names tell: {MUTANTS[before]}" in line for line in found.missing)
    assert found.missing


def test_a_variable_that_differs_is_an_override_or_named(known: KnownScript) -> None:
    found = translated_script("MATRIX_LR=0.03 ROWS_KEPT=4 x.py", variables_of_script(parsed_script(SCRIPT), "x"))
    assert found.overrides == [f"experiment={PRESET}", "scale=record", "optim.matrix_lr=0.03"]
    assert found.missing == ["not known here, so not in the list: ROWS_KEPT=4"]
    found_ = Likeness(known, True, (), (), set())
    assert unsettled(found_, {"ROWS_KEPT": "0"}, []) == ["ROWS_KEPT=0"] and not unsettled(
        found_, {"ROWS_KEPT": "3"}, []
    )


def test_techniques_come_and_go(known: KnownScript) -> None:
    changed = on_preset(known, [*known.overrides, "tech=[xsa]", "tech.xsa.last_n=3"])
    assert compose(changed).tech["xsa"].last_n == 3 and "fp16" in compose(changed).quant.embed.format


def test_the_table_has_every_record_once() -> None:
    with (ROOT / "docs/records.csv").open(newline="") as file:
        records = {row["folder"]: row["experiment"] for row in csv.DictReader(file)}
    assert {known.folder: known.experiment for known in known_scripts()} == records
    assert all(len(known.digests) > 30 for known in known_scripts()) and len(records) == 51
    assert Path(TABLE).stat().st_size < 200_000


def test_a_setting_that_reads_no_variable_in_the_end_is_no_part(known: KnownScript) -> None:
    steps = '    steps = int(os.environ["STEPS"]) if os.environ.get("STEPS") else None\n'
    text = SCRIPT.replace("class Hyperparameters:\n", f"class Hyperparameters:\n{steps}")
    assert compared(text.replace("+ total", "+ total + h.steps")).differing == ("second",)
    assert compared(text).differing == ()


def test_a_variable_that_nothing_reads_which_runs_changes_no_setting(known: KnownScript) -> None:
    stride = '    eval_stride = int(os.environ.get("EVAL_STRIDE", "256"))\n'
    slides = '    slides = bool(int(os.environ.get("SLIDES", "0")))\n'
    text = SCRIPT.replace("class Hyperparameters:\n", f"class Hyperparameters:\n{stride}{slides}")
    text = text.replace("    total = len", "    if h.slides:\n        return h.eval_stride\n    total = len")
    found = translated_script("", variables_of_script(parsed_script(text), "x"))
    assert found.missing == [] and found.overrides == [f"experiment={PRESET}", "scale=record"]
    named = translated_script("RUN_ID=mine VAL_LOSS_EVERY=7", variables_of_script(parsed_script(text + LOGS), "x"))
    assert {"name=mine", "eval.val_loss_every=7"} <= {*named.overrides}
    on = translated_script("SLIDES=1", variables_of_script(parsed_script(text), "x"))
    assert "eval.stride=256" in on.overrides and "second" in on.missing[0]


LOGS = 'RUN, EVERY = os.environ.get("RUN_ID", "a"), int(os.environ.get("VAL_LOSS_EVERY", "0"))\nlog(RUN, EVERY)\n'


def test_a_setting_is_that_of_the_variable_which_runs(known: KnownScript) -> None:
    """Two variables may stand for one setting, of which a script reads one."""
    decays = 'muon_wd = float(os.environ.get("MUON_WD", "0.3"))\n'
    decays += '    muon = float(os.environ.get("MUON_WEIGHT_DECAY", "0.2"))'
    reads = SCRIPT.replace("class Hyperparameters:\n", f"class Hyperparameters:\n    {decays}\n").replace(
        "total = len(first(h))", "total = len(first(h)) * h.muon"
    )
    found = translated_script("", variables_of_script(parsed_script(reads), "x"))
    assert "optim.muon_wd=0.2" in found.overrides and found.missing


def test_a_technique_whose_variable_nothing_reads_is_named(known: KnownScript) -> None:
    ema = '    ema_enabled = bool(int(os.environ.get("EMA_ENABLED", "1")))\n'
    script = variables_of_script(
        parsed_script(SCRIPT.replace("class Hyperparameters:\n", f"class Hyperparameters:\n{ema}")), "x"
    )
    missing = translated_script("", script).missing
    assert len(missing) == 1 and "nothing that runs reads these" in missing[0] and "EMA_ENABLED=1" in missing[0]


SWITCHED = SCRIPT.replace("    if h.doubles:\n        return 2\n", "    if h.ema_enabled:\n        return 2\n").replace(
    '    doubles = bool(int(os.environ.get("DOUBLES", "0")))\n',
    '    ema_enabled = bool(int(os.environ.get("EMA_ENABLED", "1")))\n',
)


def test_a_technique_that_a_script_has_off_is_compared_by_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    script = variables_of_script(parsed_script(SWITCHED), "x")
    assert script.tree is not None
    own = KnownScript("ours", PRESET, entries(script.tree, script.defaults), {}, ())
    monkeypatch.setattr(module, "known_scripts", lambda: (own,))
    assert compared(SWITCHED).differing == ()
    # The script writes the part in its own way, and has it off.
    ways = SWITCHED.replace("        return 2\n", "        return len(first(h)) ** 2\n")
    assert compared(ways).differing == ("second",)
    assert compared(ways.replace('"EMA_ENABLED", "1"', '"EMA_ENABLED", "0"')).differing == ()
    # Its variable says no more than that the part is off: where the part is always there, it is named.
    always = ways.replace("if h.ema_enabled:", "if h.rows_kept:").replace('"EMA_ENABLED", "1"', '"EMA_ENABLED", "0"')
    assert compared(always).differing == ("second",)
    without = ways.replace("    if h.ema_enabled:\n        return len(first(h)) ** 2\n", "")
    assert compared(without.replace('"EMA_ENABLED", "1"', '"EMA_ENABLED", "0"')).differing == ()
    assert compared(without).differing == ("second",)
    # Or it has neither the part nor its variable, which is no script with the part and without the variable.
    variable = '    ema_enabled = bool(int(os.environ.get("EMA_ENABLED", "1")))\n'
    assert compared(without.replace(variable, "")).differing == ()
    assert compared(SWITCHED.replace(variable, "").replace("if h.ema_enabled:", "if True:")).differing == ("second",)


CLASSES = SCRIPT.replace("\n\nh = ", "{classes}\n\nh = ")
NEVER_BUILT = """

class Cache:
    def __init__(self):
        self.seen = {}

    def update(self, x):
        self.seen[x] = 1
"""
BUILT = """

class Digits:
    def update(self, x):
        return kept(x)

    def never(self, x):
        return rounded(x)
"""


def test_methods_run_where_their_class_is_named_and_they_are_called(known: KnownScript) -> None:
    """A class that nothing builds has methods that other objects have, too; one that is built has some never called."""
    plain = CLASSES.replace("{classes}", "")
    built = plain.replace("    total = len", "    Digits().update(3)\n    total = len")
    assert compared(CLASSES.replace("{classes}", NEVER_BUILT)).differing == ()
    hashed = plain.replace("    total = len", "    hashlib.sha256().update(h)\n    total = len")
    assert compared(hashed.replace("\n\nh = ", f"{NEVER_BUILT}\n\nh = ")).differing == ("second",)
    assert compared(built.replace("\n\nh = ", f"{BUILT}\n\nh = ")).differing == ("Digits.update", "second")
    named = built.replace("    total = len", '    getattr(Digits(), "never")(3)\n    total = len')
    assert "Digits.never" in compared(named.replace("\n\nh = ", f"{BUILT}\n\nh = ")).differing
    computed = named.replace('"never"', '"nev" + "er"')
    assert "Digits.never" in compared(computed.replace("\n\nh = ", f"{BUILT}\n\nh = ")).differing
    forward = BUILT.replace("def never", "def forward")
    assert "Digits.forward" in compared(built.replace("\n\nh = ", f"{forward}\n\nh = ")).differing
