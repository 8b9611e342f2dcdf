"""What a scientist does with runs: sweeps, tables and verdicts, plans, proofs, mirrors. The core runs without it.

Lowest first: `artifacts`, `corpora`, `proofs`, `report`, `plan`, `track`, `sweep`, `cluster`.
"""
