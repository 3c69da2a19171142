"""What each process needs: the runtime, timers and loops, heartbeats, and waiting requests."""
