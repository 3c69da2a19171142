"""Heat with leases: its own resources, and climate's."""

import os
import time

from tests.support.process import Service, date, eventually

# One is always registered, a template registers the other. No other test uses them.
HOSTS = os.environ.get("CLIMATE_TEST_HEAT_HOSTS", "fake09,fake10").split(",")
HOST, OTHER = HOSTS
CREATED = ("CREATE_COMPLETE", "Stack CREATE completed successfully")
UPDATED = "UPDATE_COMPLETE"
ISOLATION = "blazar"


def present_minute() -> str:
    """Return the current minute, once enough of it is left for Heat to reserve in it."""
    while time.time() % 60 > 45:
        time.sleep(0.5)
    return date(0)


def until_gone(service: Service, path: str) -> None:
    """Wait until the lookup raises NotFound; the end of a deleted lease may take a while."""
    eventually(lambda: service.call("GET", path).status_code == 404, f"{path} is gone")
