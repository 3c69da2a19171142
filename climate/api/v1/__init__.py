"""The v1 API, wire-compatible with Blazar.

Each kind of object, such as leases, has a module. ``schemas`` validates requests.
"""
