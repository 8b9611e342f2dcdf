"""The typed configuration, its checks, and its composition by Hydra.

Public: `config.Config` and its groups, `composition.compose`, `hardware.detect`.
"""
