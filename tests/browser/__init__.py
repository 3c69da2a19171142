"""The web console in a real Chromium, against ``climate-standalone`` with a simulated cloud."""
