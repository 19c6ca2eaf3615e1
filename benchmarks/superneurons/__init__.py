"""The figures and tables of SuperNeurons (Wang et al., PPoPP 2018), recomputed: run by benchmarks/paper.py."""
