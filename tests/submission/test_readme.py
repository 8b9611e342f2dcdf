"""Numbers in a submission's README are those that people wrote."""

from golf.submission.readme import technique_table
from tests.support import compose


def test_the_table_has_no_traces_of_binary_arithmetic() -> None:
    cfg = compose(["tech=[ema]", "tech.ema.decay=0.8999999999999999", "optim.matrix_lr=0.0123456789"])
    table = technique_table(cfg)
    assert "| ema | decay 0.9 | PR #287 |" in table
    assert "| optim, unlike the baseline | matrix_lr 0.0123456789" in table


def test_settings_are_named_where_they_are_unlike_the_baseline() -> None:
    muon = ["optim.muon_wd=0.1", "schedule.muon_wd_taper_final=0.5", "optim.muon_coefficients=polar_express"]
    quant = ["quant.control_format=fp16", "quant.prune.weights=0.03", "quant.mlp.format=int6"]
    table = technique_table(compose(["scale=record", *muon, *quant]))
    assert "muon_wd 0.1, muon_coefficients polar_express" in table and "muon_wd_taper_final 0.5" in table
    assert "mlp.format int6, control_format fp16, prune.weights 0.03 |" in table
    assert "matrix_lr" not in table and "attn.format" not in table and "name" not in table
    assert "| schedule, unlike the baseline | – | – |" in technique_table(compose(["scale=record"]))
