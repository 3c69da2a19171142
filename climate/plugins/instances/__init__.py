"""``virtual:instance`` and ``flavor:instance``: slots for servers, on Nova and Placement."""
