"""The benchmark of lateness: its cases, its managers, and the plug-in that notes each start."""
