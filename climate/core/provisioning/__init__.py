"""When hosts are prepared and shut down, and how ready they are."""
