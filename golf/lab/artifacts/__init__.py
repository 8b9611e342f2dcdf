"""Artifacts looked at: what a file holds (`inspection`), and what its rounding costs (`quant_gap`)."""
