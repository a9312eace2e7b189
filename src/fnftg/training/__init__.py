"""Training that is fast, resumable and distributed."""
