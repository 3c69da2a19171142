"""What every process has: its collaborators, timer, worker loops and long polling."""
