"""Data sets that are made or fetched: `own_text` makes one of anybody's text, `hub` gets the public ones."""
