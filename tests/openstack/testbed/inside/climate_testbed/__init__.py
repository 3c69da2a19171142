"""What runs inside OpenStack's virtual environment: fakes, a web server, and the furniture."""
