"""Starting the ranks of a run: `launcher` chooses, `rank` runs one here, `torchrun` several; `process` is hygiene."""
