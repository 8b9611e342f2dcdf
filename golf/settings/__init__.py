"""What is asked: the typed configuration, its checks, and how Hydra composes it.

Public: `config.Config` and its groups, `composition.compose`, `hardware.detect`.
"""
