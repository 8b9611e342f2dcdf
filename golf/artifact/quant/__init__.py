"""Number formats of the artifact: `formats` codes one tensor, `policy` decides which tensor gets which format."""
