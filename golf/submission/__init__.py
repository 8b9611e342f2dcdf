"""Submissions of own runs: the package as one file (`script`), the record folder, and the rehearsal of its script.

Public: `record_folder.export`, `script.bundle.Bundle`, `code_bytes.code_bytes`.
"""
