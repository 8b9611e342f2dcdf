"""Text to tokens to batches: `shards` is the file format, `batches` opens a loader on it, `tokenizer` counts its bytes.

`documents` turns texts into shards and a tokenizer, `pydocs` does so for the embedded corpus, `hub` downloads.
"""
