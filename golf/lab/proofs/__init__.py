"""Proofs that what is selected acts and that scores are legal, made before the clock and of the trained weights.

Public: `run_proofs.failed_proofs`, `scoring_proofs.trained_breaches`, `legality.find_breaches`.
"""
