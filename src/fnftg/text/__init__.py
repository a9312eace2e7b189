"""Texts: encoders by name, tokens and features that are computed once, and the Text Transformer (TT)."""
