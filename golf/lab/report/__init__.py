"""Results of runs: rows, statistics, verdicts, tables and pages. Importing it does not import torch.

Public: `study.read_study`, `findings.judged`, `results.results_table`, `page.page`.
"""
