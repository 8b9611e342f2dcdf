"""Other people's runs: reading their logs and submissions, auditing them, and keeping them as rows.

Public: `collection.collect`, `audit.audit`, `imported.store`.
"""
