"""A submission: `export` makes a record folder out of runs and proves it by running it, `audit` looks at anybody's.

The script itself is made by `golf.bundle`.
"""
