"""Resizing: a reservation gives back resources, or gains resources that the user names.

- ``by_name``: which resources the user names, before the transaction.
- ``give_back``: a running reservation shrinks.
- ``growth``: a reservation gains exactly the named resources.
"""
