"""Plug-ins, one per resource type, and the drivers with which they act on the cloud.

Plug-ins never access the database: the manager passes records and stores what they return.
"""
