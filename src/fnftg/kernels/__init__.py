"""Compiled loops for what dominates the time on a CPU: L1 distances, filtered ranks, and sums over ragged segments."""
