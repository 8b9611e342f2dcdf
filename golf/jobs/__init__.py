"""Start and supervise processes: ranks on this machine, sweeps, jobs of a cluster, and mirrors of runs to a tracker.

Public: `launch.launcher.train_and_score`, `sweep.batch.run_batch`, `cluster.submit.submit`.
"""
