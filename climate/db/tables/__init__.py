"""Table definitions, and bulk inserts and updates."""
