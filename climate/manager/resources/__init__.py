"""Resources: register, list and remove them, and follow the cloud's inventory."""
