"""Texts: tokens stored once, encoders by name, the Text Transformer (TT) and its feature cache."""
