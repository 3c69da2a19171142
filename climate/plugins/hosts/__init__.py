"""The resource type ``physical:host``: whole compute hosts on Nova, or simulated."""
