"""The use cases (called by the API in its own process) and the work that time brings."""
