"""Measurements of this machine and of the framework on it, for `scripts/bench.py` and `golf gpu-check`."""
