"""Compare this checkout with a previous release and with the floor, in alternating turns."""
