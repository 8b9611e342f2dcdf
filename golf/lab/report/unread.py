"""Settings that nothing reads, because what they belong to is off."""

from __future__ import annotations

import re

from golf.settings.config import Config
from golf.settings.quant_config import uses_gptq


def is_unread(key: str, cfg: Config) -> bool:
    """Tell whether nothing in a run of `cfg` reads the setting of the full key `key`. What switches on is read."""
    ttt, quant = cfg.eval.ttt, cfg.quant
    read = {
        r"eval\.ttt\.(?!method)": ttt.method != "off",
        r"eval\.ttt\.(epochs|momentum|grad_clip|freeze_blocks)": ttt.method == "sgd",
        r"eval\.ttt\.lora_": ttt.method == "lora",
        r"eval\.ttt\.lora_phases\.(?!count)": ttt.lora_phases.count > 0,
        r"eval\.tilt\.(?!method)": cfg.eval.tilt.method != "off",
        r"quant\.lqer\.(?!rank)": quant.lqer.rank > 0,
        r"quant\.(gptq|calibration)\.": uses_gptq(quant),
        r"quant\.codec_level": quant.codec != "context",
        r"optim\.muon_row_eps": cfg.optim.muon_row_normalize,
        r"optim\.clip_before_reduction": cfg.optim.muon == "parallel",
        r"schedule\.warmdown_iters": cfg.schedule.warmdown_fraction == 0,
    }
    return any(re.match(pattern, key) for pattern, is_read in read.items() if not is_read)
