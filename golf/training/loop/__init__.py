"""The training process. `main` is a run from its model to its score, and `rank` starts it in a run folder."""
