"""The unmodified client library of Blazar against a running service."""

import datetime as dt
from typing import Any

import pytest

from tests.support.clients import at, window
from tests.support.process import Service
from tests.support.service import host_reservation

pytest.importorskip("blazarclient", reason="python-blazarclient is not installed")

from blazarclient import client as blazar_client
from blazarclient.exception import BlazarClientException
from keystoneauth1 import access, identity, noauth, session


@pytest.fixture
def blazar(service: Service) -> Any:
    auth = noauth.NoAuth(endpoint=f"{service.url}/v1")
    return blazar_client.Client(1, session=session.Session(auth=auth))


# Changes, and the window that each leads to: minutes after noon, from a lease of noon to one.
MOVES: list[tuple[dict[str, str], tuple[float, float]]] = [
    ({"prolong_for": "1h"}, (0, 120)),
    ({"prolong_for": "600s"}, (0, 70)),
    ({"prolong_for": "1d"}, (0, 25 * 60)),
    ({"reduce_by": "30m"}, (0, 30)),
    ({"defer_by": "15m"}, (15, 60)),
    ({"advance_by": "2h"}, (-120, 60)),
    ({"prolong_for": "1h", "defer_by": "1h"}, (60, 120)),
    ({"reduce_by": "20m", "advance_by": "30m"}, (-30, 40)),
]


def test_a_lease_is_moved(blazar: Any, lease: dict[str, Any], noon: dt.datetime) -> None:
    dates = {"start_date": at(noon), "end_date": at(noon, 60)}
    for change, expected in MOVES:
        assert window(blazar.lease.update(lease["id"], **dates), noon) == (0, 60)
        assert window(blazar.lease.update(lease["id"], **change), noon) == expected, change
        assert window(blazar.lease.get(lease["id"]), noon) == expected, change


def test_allocations_name_the_hosts_of_a_lease(blazar: Any, lease: dict[str, Any]) -> None:
    [host_id] = hosts_of(blazar, lease["id"])
    taken = blazar.allocation.get("os-hosts", host_id)
    assert taken["resource_id"] == host_id
    [mine] = [item for item in taken["reservations"] if item["lease_id"] == lease["id"]]
    assert mine == {
        "id": lease["reservations"][0]["id"],
        "lease_id": lease["id"],
        "start_date": lease["start_date"],
        "end_date": lease["end_date"],
    }


def hosts_of(blazar: Any, lease_id: str) -> list[str]:
    return [
        host["resource_id"]
        for host in blazar.allocation.list("os-hosts", sort_by="resource_id")
        if lease_id in [taken["lease_id"] for taken in host["reservations"]]
    ]


REJECTED = [
    (host_reservation("", ""), 400, "min"),
    (host_reservation(1, ""), 400, "max"),
    (host_reservation(100, 100), 409, "100"),
    (host_reservation(resource_properties='["==", "$no_such", "1"]'), 400, "no_such"),
    ({**host_reservation(), "resource_type": "virtual:unknown"}, 400, "virtual:unknown"),
]


def test_the_reason_of_a_rejection_reaches_the_user(blazar: Any, noon: dt.datetime) -> None:
    for reservation, code, text in REJECTED:
        with pytest.raises(BlazarClientException) as rejection:
            blazar.lease.create("rejected", at(noon), at(noon, 60), [reservation], [])
        assert rejection.value.kwargs["code"] == code
        assert str(rejection.value).startswith("ERROR: ")
        assert text in str(rejection.value)


class CatalogAuth(identity.BaseIdentityPlugin):
    """Identity with a service catalog, as from Keystone."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def get_auth_ref(self, *_: Any, **__: Any) -> access.AccessInfo:
        endpoint = {"interface": "public", "region_id": "here", "url": self._url}
        catalog = [{"type": "reservation", "endpoints": [endpoint]}]
        token = {"expires_at": "2999-01-01T00:00:00Z", "catalog": catalog}
        return access.create(body={"token": token}, auth_token="jane:lab:member")

    def get_cache_id_elements(self) -> dict[str, str | None]:
        return {}


@pytest.mark.parametrize("path", ["", "/", "/v1"])
def test_a_catalog_may_contain_the_version_or_leave_it_to_discovery(
    service: Service, noon: dt.datetime, path: str
) -> None:
    auth = CatalogAuth(service.url + path)
    blazar = blazar_client.Client(1, session=session.Session(auth=auth))
    lease = blazar.lease.create("mine", at(noon), at(noon, 60), [host_reservation()], [])
    assert (lease["user_id"], lease["project_id"]) == ("jane", "lab")
    assert lease["id"] in [found["id"] for found in blazar.lease.list()]


# Among the warnings of openstacksdk are some about its own code.
@pytest.mark.filterwarnings(r"ignore:[\s\S]* will be removed in a future release")
@pytest.mark.parametrize("path", ["", "/", "/v1"])
def test_openstacksdk_finds_the_service_in_the_catalog(service: Service, path: str) -> None:
    sdk = pytest.importorskip("openstack", reason="openstacksdk is not installed")
    auth = CatalogAuth(service.url + path)
    with sdk.connection.Connection(session=session.Session(auth=auth)) as connection:
        assert "leases" in connection.reservation.get("/leases").json()


@pytest.mark.filterwarnings(r"ignore:[\s\S]* will be removed in a future release")
def test_openstacksdk_needs_no_authentication(service: Service, lease: dict[str, Any]) -> None:
    sdk = pytest.importorskip("openstack", reason="openstacksdk is not installed")
    endpoint = f"{service.url}/v1"
    options = {"load_yaml_config": False, "load_envvars": False, "auth_type": "none"}
    with sdk.connect(**options, endpoint=endpoint) as connection:
        answer = connection.reservation.get(f"/leases/{lease['id']}")
    assert answer.json()["lease"]["name"] == lease["name"]


def test_a_network_is_reserved(blazar: Any, service: Service, noon: dt.datetime) -> None:
    known = {"network_type": "vlan", "physical_network": "sim", "segment_id": 101}
    service.ok("POST", "/v1/networks", known)
    asked = {"resource_type": "virtual:network", "network_name": "mine"}
    lease = blazar.lease.create("net", "now", at(noon, 60), [asked], [])
    [mine] = service.until_lease_is(lease["id"], "ACTIVE")["reservations"]
    assert list(mine["networks"]) == ["vlan:sim:101"]
    blazar.lease.delete(lease["id"])
