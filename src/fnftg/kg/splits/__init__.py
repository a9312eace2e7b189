"""Splits that hold something back: entities (inductive), relations (FIR), or some edges of new entities (support)."""
