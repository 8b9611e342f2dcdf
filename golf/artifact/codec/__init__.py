"""Lossless compression of the artifact: byte codecs, layouts before them, and the entropy coder `context`."""
