"""What is stored and how: tables, and one module of statements per noun.

Functions here get a session and never commit; ``Database`` alone opens transactions.
"""
