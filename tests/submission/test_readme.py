"""Numbers in a submission's README are those that people wrote."""

import pytest

from golf.submission.readme import technique_table, written
from tests.support import compose


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8999999999999999, "0.9"),
        (0.30000000000000004, "0.3"),
        (0.123456789, "0.123456789"),
        (1e-08, "1e-08"),
        (20000.0, "20000"),
        (3, "3"),
        (True, "True"),
        (None, "None"),
        ("keep", "keep"),
        ([9, 0.1 + 0.2], "[9, 0.3]"),
    ],
)
def test_settings_are_written_in_their_shortest_form(value: object, text: str) -> None:
    assert written(value) == text


def test_the_table_has_no_traces_of_binary_arithmetic() -> None:
    cfg = compose(["tech=[ema]", "tech.ema.decay=0.8999999999999999", "optim.matrix_lr=0.0123456789"])
    table = technique_table(cfg)
    assert "momentum 0.95, decay 0 " in table and "moments" not in table and "rows" not in table
    assert "decay 0.9 " in table.replace(",", " ") and "learning rate 0.0123456789," in table


def test_options_of_the_optimizer_are_named_where_they_are_on() -> None:
    muon = ["optim.muon_wd=0.1", "schedule.muon_wd_taper_final=0.5", "optim.muon_coefficients=polar_express"]
    dtypes = ["optim.muon_row_normalize=true", "optim.muon_momentum_dtype=bf16", "optim.adam_moment_dtype=fp32"]
    quant = ["quant.control_format=fp16", "quant.prune.weights=0.03"]
    table = technique_table(compose([*muon, *dtypes, *quant]))
    assert ", control tensors fp16, smallest 0.03 of weights zeroed; zlib 9" in table
    assert "decay 0.1 falling to 0.5 of it from 0.7 on, rows normalized, coefficients polar_express" in table
    assert "momentum in bf16 |" in table and "moments in fp32 |" in table
