"""Definitions of the tables, and statements that insert or update many rows at once."""
