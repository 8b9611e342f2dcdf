"""Export of the package as one file: `bundle` makes the script of a submission."""
