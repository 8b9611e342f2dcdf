"""Mirrors of run folders where a team looks. Nothing reads back from them, and no training process imports them.

`companion` starts `mirror` as a process beside the run; `stream`, `sweep_report` and `imported` are what it mirrors,
`keys` says what is called how, `record` under which id, `wandb_client` alone imports wandb.
"""
