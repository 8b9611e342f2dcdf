"""How good a model is. `bits` is the metric; `scorer` takes it in the ways that the configuration asks for.

`standard` cuts the validation split into sequences, `sliding` runs a window over it, `ttt_sgd` and `ttt_lora` train on
what has been scored. `legality` looks for what the rules forbid.
"""
