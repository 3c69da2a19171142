"""The program climate-status, and the checks that it runs."""
