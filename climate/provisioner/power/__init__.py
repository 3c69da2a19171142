"""Power drivers: IPMI, Redfish, an operator's program, or simulated.

``driver`` has the interface.
"""
