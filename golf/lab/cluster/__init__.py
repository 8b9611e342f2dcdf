"""Sweeps on a Slurm cluster: `submit` sends a job array, `task` is what each job runs, `status` reads how far they are.

The jobs run from a `snapshot` of the code. `queue` asks Slurm, and `show` prints. Without Slurm: `rented` sends a
`batch` of runs through a `line` of ssh, `pod` is golf on the machine, and `bring` brings home what the runs leave.
"""
