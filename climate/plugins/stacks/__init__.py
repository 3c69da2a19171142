"""``virtual:stack``: Heat stacks whose servers, volumes and addresses are reserved."""
