"""Blazar's v1 contract, byte-careful: its clients must not notice a difference."""
