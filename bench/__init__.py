"""Speed of this machine and of the framework on it, as `scripts/bench.py` measures it."""
