"""The package as one file: `bundle` puts together what a configuration needs, the other modules are its steps."""
