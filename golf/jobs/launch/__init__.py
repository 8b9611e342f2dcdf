"""Starting the ranks of a run: `launcher` chooses, `rank` runs one in this process, `torchrun` several."""
