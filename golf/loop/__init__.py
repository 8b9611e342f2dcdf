"""The training process: `story` tells it from data to artifact, the other files are its steps."""
