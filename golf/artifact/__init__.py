"""The artifact file: how weights are rounded (`quant`), coded (`codec`) and written (`container`).

Public: `container.pack` and `load`, `quant.policy.quantize`.
"""
