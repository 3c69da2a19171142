"""``virtual:floatingip`` and ``network``: addresses and segments, on Neutron."""
