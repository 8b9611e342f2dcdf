"""What may be said about runs: rows, statistics, verdicts, tables, plots and pages. Imports no torch.

Public: `study.read_study`, `findings.judged`, `results.results_table`, `page.page`.
"""
