"""Leases: the use cases of the API, and what managers do for a lease during its life.

``create``, ``read``, ``update`` and ``delete`` serve requests. ``reservation_changes`` and
``event_plan`` compute the reservations and events of a changed lease. ``holds`` reserve capacity
while an external service decides. ``trusts`` let managers act as the user. ``finalizers`` outlive
a lease. ``ready_start`` delays a start until the hosts are ready. ``healing`` replaces failed
resources. ``idempotency`` replays a repeated request; its statements are in ``db/leases``.
"""
