"""Mirror run folders to W&B. Nothing reads back from W&B, and no training process imports these modules.

`companion` starts `mirror` as a process beside the run. `stream` mirrors a run and `sweep_report` a sweep's table.
`backfill` mirrors what ended earlier, `keys` names the metrics, `mirror_record` keeps the run's id, and `wandb_client`
is the only module that imports wandb.
"""
