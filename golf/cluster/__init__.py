"""Sweeps on a cluster: what is sent (`submit`, `snapshot`), what runs (`task`), how it stands (`queue`, `status`)."""
