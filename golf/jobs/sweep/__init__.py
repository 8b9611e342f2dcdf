"""Runs that were asked for together: which there are, which still have to run, and where on this machine."""
