"""Leases: the use cases of the API, and what managers do for a lease during its life.

``create``, ``read``, ``update`` and ``delete`` serve requests. ``reservation_changes`` and
``event_plan`` store the reservations and events of a changed lease. ``holds`` reserves capacity for
a new lease while an external service decides whether to allow the lease, or plug-ins prepare the
cloud for it. ``trusts`` creates and revokes the Keystone trusts by which managers act as a lease's
user. ``finalizers`` runs tasks that outlive a lease. ``ready_start`` delays a start until the hosts
are ready. ``healing`` replaces failed resources. ``idempotency`` answers a repeated request with
the first answer.
"""
