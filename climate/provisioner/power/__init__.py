"""Power drivers: IPMI, Redfish, an operator's program, or simulated.

The module ``driver`` defines the interface of the drivers.
"""
