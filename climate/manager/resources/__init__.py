"""Use cases of resources, registration of hosts, and synchronisation with the cloud."""
