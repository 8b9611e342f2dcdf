"""What a run is outside the training process: its folder, identity, environment record and result."""
