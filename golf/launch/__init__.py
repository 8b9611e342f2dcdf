"""Start the ranks of a run: `launcher` chooses how, `worker` runs one rank in this process, `torchrun` starts several.

Three modules are entries of processes: `job` is one run of a sweep, `agent` is torchrun, `worker` is a rank under it.
"""
