"""Who runs where: ranks on this machine, sweeps, clusters, and the mirror of runs.

Public: `launch.launcher.train_and_score`, `sweep.batch.run_batch`, `cluster.submit.submit`.
"""
