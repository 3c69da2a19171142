"""What each process needs: runtime, timers, loops, heartbeats, and limits of waiting requests."""
