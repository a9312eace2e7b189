"""What speaks for a candidate beside the embedding score: one file for each source, one table, one fit."""
