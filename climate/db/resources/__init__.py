"""Statements on resources, their properties, capacity and allocations."""
