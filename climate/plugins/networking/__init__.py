"""``virtual:floatingip`` and ``virtual:network``: addresses and segments of Neutron's networks."""
