"""``virtual:instance`` and ``flavor:instance``: reserved capacity for servers on shared hosts."""
