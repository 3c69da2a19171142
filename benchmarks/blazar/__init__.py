"""The benchmark against Blazar."""
