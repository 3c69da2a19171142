"""The web console: serves its page and its files. The page uses the v2 API like any client."""
