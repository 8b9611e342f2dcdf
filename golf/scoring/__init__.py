"""How good a model is: `bits` is the metric, `standard` takes it over non-overlapping sequences."""
