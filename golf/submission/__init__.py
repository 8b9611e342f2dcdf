"""Submissions of own runs. Public: `record_folder.export`, which writes a record folder and proves its script by
running it.
"""
