"""Access to OpenStack that several resource types share.

``session`` has the clients, ``trusts`` acts as a user, ``aggregates`` changes Nova host aggregates,
``placement_reservations`` holds capacity in Placement, ``servers`` lists and deletes servers,
``neutron`` is its client.
"""
