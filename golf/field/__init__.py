"""Other people's runs: their logs and submissions are read, audited and kept as rows.

From below: `text` and `figures`; `log_lines`, `event_lines`, `echoed_source` and `log_reader` (a log); `scores` and
`foreign_run` (a run); `submission_json` and `folder_reader` (a submission); `run_audit`, `submitted_runs`, `claims` and
`readme_claims` (rules and claims); `import_store` and `folder_audit`, which put these together for the two commands;
`imported_entries` and `import_tables`, which show what was imported. `env_names`, `env_vars`, `env_techniques` and
`translation` turn public command lines into overrides.

Public: `import_store.import_folders`, `import_store.store`, `folder_audit.audit`.
"""
