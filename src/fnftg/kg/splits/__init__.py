"""Splits that hold something back: entities (inductive), relations (FIR), or part of the new entities' edges (support)."""
