"""The rules for preparing hosts and shutting them down, and the readiness of hosts."""
