"""``physical:host``: whole compute hosts on Nova, or simulated."""
