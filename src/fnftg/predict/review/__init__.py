"""The page on which a person reviews predicted triples (`fnftg complete --review`)."""
