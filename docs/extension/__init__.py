"""The parts of the documentation that come from the code, and the extension that adds them."""
