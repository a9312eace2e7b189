"""The systems, one file each, with the common interface `LinkPredictor`."""
