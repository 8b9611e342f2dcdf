"""What people look at: `runlog` while a run goes on, `summary` and `curves` when it has ended."""
