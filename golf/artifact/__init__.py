"""The bytes that count: the artifact file, and the size of the script that is counted with it.

Public: `container.pack` and `load`, `quant.policy.quantize`, `script.code_bytes.code_bytes`.
"""
