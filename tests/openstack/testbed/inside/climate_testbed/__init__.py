"""Modules for OpenStack's virtual environment: fakes, a web server, and initial resources."""
