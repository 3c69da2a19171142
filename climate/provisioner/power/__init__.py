"""Power drivers: IPMI, Redfish, a command, or simulated.

``driver`` is their interface; its ``switch`` powers a node on or off and checks the result.
"""
