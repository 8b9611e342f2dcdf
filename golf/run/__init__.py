"""A run on disk: its folder, identity, logs and result. Imports no torch.

Public: `folder.RunFolder`, `result.Result`, `identity.variant_id`, `runlog.RunLog`.
"""
