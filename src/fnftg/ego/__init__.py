"""Ego-graphs: the visible edges around entities, leak-free sampling, and the Graph Transformer (GT)."""
