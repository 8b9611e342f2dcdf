"""Optimizers and who gets which: `groups` assigns parameters, `muon` and `adam` update them."""
