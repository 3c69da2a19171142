"""Statements on resources, their properties, capacity, allocations and occupancy."""
