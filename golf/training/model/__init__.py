"""The network: `gpt` puts `attention`, `layers` and `rotary` together, `build` applies the techniques."""
