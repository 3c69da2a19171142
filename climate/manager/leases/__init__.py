"""Use cases of leases, and what follows from their life.

``create``, ``read``, ``update`` and ``delete`` serve requests. ``reservation_changes`` and
``event_plan`` compute what a change means. ``holds`` keep capacity while an external service
decides, ``trusts`` let climate act as the user later, ``finalizers`` outlive a lease,
``ready_start`` starts leases that wait for their hosts, ``healing`` replaces failed hosts.
"""
