"""Runs that were asked for together: which there are, what has to run, where on this machine, and the record of it."""
