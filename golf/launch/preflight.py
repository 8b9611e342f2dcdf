"""What has to be in order before a run folder is made: packages, data that opens, starting weights that fit."""

from __future__ import annotations

from golf.artifact.codecs import require_codec
from golf.config import Config, is_tracked
from golf.data.batches import make_loader
from golf.data.dataset import is_unbuilt, open_dataset
from golf.model.build import build_model
from golf.model.checkpoint import load_weights
from golf.paths import resolve


def check_inputs(cfg: Config) -> None:
    """Raise `GolfError` for inputs that cannot serve; build the embedded corpus if it is not there yet."""
    require_codec(cfg.quant.codec)
    if is_tracked(cfg.track):
        from golf.track.companion import check_installed

        check_installed()
    if is_unbuilt(cfg.data):
        print(f"building data={cfg.data.name} in {resolve(cfg.data.path)} (once, about ten seconds)", flush=True)
    make_loader(cfg, open_dataset(cfg))
    if cfg.model.init_from:
        load_weights(build_model(cfg), resolve(cfg.model.init_from))
