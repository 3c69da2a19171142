"""The types ``virtual:floatingip`` and ``virtual:network``: addresses and segments of Neutron."""
