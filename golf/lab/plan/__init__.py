"""Predictions before a run: parameters, FLOPs, bytes, seconds. Public: `plan.make_plan`, `solve.solve`."""
