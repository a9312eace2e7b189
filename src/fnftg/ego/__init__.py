"""Ego-graphs, the edges around a centre: which of them a query may see, and the Graph Transformer that reads them."""
