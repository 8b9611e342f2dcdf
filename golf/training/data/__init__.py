"""Text to tokens to batches: `shards` is the file format, `batches` opens a loader, `byte_tables` counts bytes."""
