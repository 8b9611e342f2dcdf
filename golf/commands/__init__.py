"""Subcommands of `golf`, one file each: `golf quant-gap` is `quant_gap_command.py`.

A file has `main(arguments)`, which returns the exit status, and its first line is the line that `golf --help` shows;
options.yaml has the arguments of all commands. A command imports what it works with inside `main`, so that `--help`
needs neither torch nor Hydra.
"""
