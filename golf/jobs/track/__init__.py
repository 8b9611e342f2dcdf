"""Mirrors of run folders in W&B. Nothing reads back from them, and no training process imports them.

`companion` starts `mirror` as a process beside the run; `stream`, `sweep_report` and `imported` are what it mirrors,
`keys` names the metrics, `record` keeps the run's id, `wandb_client` alone imports wandb.
"""
