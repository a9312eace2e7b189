"""Filtered ranks under a protocol that says what is visible, what is hidden and who the candidates are."""
