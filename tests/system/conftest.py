"""A ``climate-standalone`` that tests share, and fixtures for single tests."""

import datetime as dt
import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import broker
from tests.support.clients import OpenStack, at
from tests.support.process import Service, standalone
from tests.support.proxy import Proxy
from tests.support.service import host_reservation

_days = itertools.count(2)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("standalone")


@pytest.fixture(scope="session")
def service(home: Path) -> Iterator[Service]:
    """Return the shared service; each test uses its own hosts and days."""
    with standalone(home) as (started, _):
        yield started


@pytest.fixture
def noon() -> dt.datetime:
    """Return the noon of a day that no other test uses."""
    today = dt.datetime.now(dt.UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    return today + dt.timedelta(days=next(_days))


@pytest.fixture
def lease(service: Service, noon: dt.datetime) -> dict[str, Any]:
    """Return a lease of one host from noon to one, with a unique name."""
    body = {
        "name": f"on {noon:%Y-%m-%d}",
        "start_date": at(noon),
        "end_date": at(noon, 60),
        "reservations": [host_reservation()],
    }
    return dict(service.ok("POST", "/v1/leases", body)["lease"])


@pytest.fixture(scope="session")
def openstack(service: Service, home: Path) -> Iterator[OpenStack]:
    """Return the ``openstack`` command with the service's address."""
    pytest.importorskip("openstackclient", reason="python-openstackclient is not installed")
    pytest.importorskip("blazarclient", reason="python-blazarclient is not installed")
    with OpenStack(home, f"{service.url}/v1") as shell:
        yield shell


@pytest.fixture
def broker_proxy(topic: str) -> Iterator[Proxy]:
    """Return a proxy to the broker that a test can cut."""
    with broker.proxy() as made:
        yield made
    gc.collect()  # py-amqp leaves sockets that broke to it; here their warnings are expected
