"""Evidence that is added to the embedding score: the sources, their features and the fit of their weights."""
