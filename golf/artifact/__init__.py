"""The bytes that count: `container` is the file, `codecs` compress it, `code` measures the program beside it."""
