"""Queries for how much of many resources is occupied over time.

The database sums up, so that the number of rows is limited.
"""
