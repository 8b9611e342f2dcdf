"""Other people's runs: train logs and submission.json files of the public challenge, read, audited and kept as rows."""
