"""Resources: registration, queries, properties of hosts, and inventory sync with the cloud."""
