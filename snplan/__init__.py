"""snplan: an offline memory-planning compiler for training neural networks."""

__version__ = "0.1.0"
