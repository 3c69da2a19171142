"""Statements on resources: which fit, which are free, and who has them."""
