"""``virtual:stack``: Heat stacks whose servers, volumes and floating IPs are reserved."""
