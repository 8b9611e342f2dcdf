"""The training process: `rank` runs it from data to result, the other files are its steps."""
