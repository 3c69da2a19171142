"""Errors: their format in the answers of v1 and v2, the table of all codes, and a page per code."""
