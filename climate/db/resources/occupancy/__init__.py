"""Statements that read the occupancy of many resources over time: bounded rows, sums in SQL."""
