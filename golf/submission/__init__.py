"""A record folder: `export` writes it from finished runs and proves its script by running it."""
