"""Scores of a model in bits per byte: `scorer` takes those that the configuration asks for.

`standard` cuts the validation split into sequences, `sliding` runs a window over it, `ttt_sgd` and `ttt_lora` train on
text that has been scored. `legality` looks for what the rules forbid.
"""
