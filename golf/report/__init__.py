"""Results of runs: rows, statistics, verdicts, tables, plots and pages. Importing it does not import torch.

Public: `study.read_study`, `findings.judged`, `results.results_table`, `page.page`.
"""
