"""Scores of a model in bits per byte: `scorer` takes the scores that the configuration asks for.

`standard` cuts the validation split into sequences, `sliding` moves a window over it, `ttt_sgd` and `ttt_lora` train on
text that has been scored. `legality` looks for breaches of the challenge's rules.
"""
