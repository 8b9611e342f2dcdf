"""Optimizers: `groups` assigns every parameter to one, `muon` and `adam` update them."""
