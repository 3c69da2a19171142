"""Power drivers: IPMI, Redfish, a command, or simulated."""
