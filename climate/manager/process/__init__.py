"""Parts of every process: the runtime, the timer, periodic tasks and waiting requests."""
