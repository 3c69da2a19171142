"""Clients of OpenStack that the drivers of several resource types share.

``session`` creates sessions and clients. ``trusts`` creates and checks Keystone trusts.
``aggregates`` changes Nova's host aggregates. ``placement_reservations`` stores instance slots in
Placement. ``servers`` lists, snapshots and deletes servers. ``neutron`` is a client of Neutron.
"""
