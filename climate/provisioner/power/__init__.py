"""Power drivers: IPMI, Redfish, a command, or simulated.

The module ``driver`` defines their interface. Its function ``switch`` powers a node on or off, and
checks the result.
"""
