"""The training process. `rank` runs it from data to result; `stages` are what it shares with the exported script."""
