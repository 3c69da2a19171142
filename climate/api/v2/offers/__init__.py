"""Offers in the v2 API: an offer holds capacity until a user accepts it as a lease."""
