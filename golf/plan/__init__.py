"""What can be known before a run: parameters, FLOPs, bytes, seconds. Public: `plan.plan`, `solve.solve`."""
