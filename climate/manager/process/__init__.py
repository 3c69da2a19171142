"""Objects that a process has once: runtime, timer, periodic tasks, and waiting requests."""
