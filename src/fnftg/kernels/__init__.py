"""Compiled loops for the most expensive steps on a CPU: L1 distances, filtered ranks, and sums over ragged segments."""
