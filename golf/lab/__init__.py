"""Sweeps, tables and verdicts, plans, proofs and mirrors of runs. The core runs without them.

Lowest first: `artifacts`, `corpora`, `proofs`, `report`, `plan`, `track`, `sweep`, `cluster`.
"""
