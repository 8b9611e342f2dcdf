"""Sweeps on a cluster: `submit` sends them from a `snapshot`, `task` runs there, `status` shows them."""
