"""Power drivers: IPMI, Redfish, a command, or simulated; ``driver`` defines their interface."""
