"""Text to tokens to batches: `shards` is the file format, `loader` reads it, `tokenizer` counts its bytes.

`documents` turns texts into shards and a tokenizer, `pydocs` does so for the embedded corpus, `hub` downloads.
"""
