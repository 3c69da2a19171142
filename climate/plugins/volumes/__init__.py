"""``virtual:volume``: capacity for volumes, on Cinder."""
