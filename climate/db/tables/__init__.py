"""Definitions of the tables, and bulk inserts and updates."""
