"""The parts of a manager process: collaborators, timer, worker threads, long polling."""
