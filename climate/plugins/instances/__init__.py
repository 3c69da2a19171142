"""The types ``virtual:instance`` and ``flavor:instance``: capacity for servers on shared hosts."""
