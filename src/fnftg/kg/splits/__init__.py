"""Splits that hold out entities (inductive), relations (FIR), or some edges of new entities (support)."""
