"""Strategies: rules that say what is kept, moved and recomputed; one file each (docs/add-a-strategy.md)."""
