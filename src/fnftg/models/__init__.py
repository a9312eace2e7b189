"""The systems: one file each, all behind `LinkPredictor`."""
