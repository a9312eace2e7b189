"""Training: configs, recipes, the training loop and restart points."""
