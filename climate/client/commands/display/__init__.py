"""Writes answers: columns of tables, refusals, the progress of a wait, and the calendar."""
