"""Sweeps on this machine: `batch` starts one, `scheduler` runs its jobs, `record` keeps the list of its runs.

The docstring of `scheduler` explains how a sweep resumes.
"""
