"""The resource type ``virtual:volume``: capacity for volumes, on Cinder."""
