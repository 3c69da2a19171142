"""Table definitions, and inserts of rows of several tables in one statement."""
