"""Mutated requests to a running service: valid requests for each route, mutations, a raw client."""
