"""The training process. `rank` runs it from data to result; `run_parts` are what it shares with the exported script."""
