"""The network: `gpt` puts `attention`, `mlp`, `rotary` and `layers` together."""
