"""Parameters of servers that climate boots, and the request to Nova for each."""

from typing import Any

import pytest
from marshmallow import ValidationError

from climate.plugins.instances.cloud import Boot
from climate.plugins.instances.flavor_plugin import FlavorSchema
from climate.plugins.instances.nova_servers import request
from climate.plugins.instances.plugin import InstanceSchema
from tests.support.cases import each_case

ROOM = {
    "amount": 2,
    "vcpus": 1,
    "memory_mb": 64,
    "disk_gb": 1,
    "affinity": None,
    "resource_properties": "",
}
SERVER: dict[str, Any] = {"imageRef": "cirros"}
NO_NETWORK = {"on_start": "create", "server": {**SERVER, "networks": "none"}}


def refusal(**params: Any) -> Any:
    with pytest.raises(ValidationError) as caught:
        InstanceSchema().load({**ROOM, **params})
    return caught.value.messages


def test_boots_no_servers_by_default() -> None:
    for nothing in ({}, {"on_start": None, "on_end": None, "server": None}):
        for schema, params in ((InstanceSchema, ROOM), (FlavorSchema, {"flavor_id": "a"})):
            loaded = schema().load({**params, "amount": 2, **nothing})
            life = [loaded[name] for name in ("on_start", "on_end", "server")]
            assert life == ["nothing", "delete", None]


def test_rejects_keeping_servers_and_suggests_a_snapshot() -> None:
    [reason] = refusal(on_end="keep")["on_end"]
    assert "other leases" in reason
    assert "snapshot" in reason


@each_case(
    "params, where",
    [
        ({"on_start": "create"}, "server"),
        ({"server": SERVER}, "server"),
        ({"on_start": "create", "server": {}}, "server"),
        ({"on_start": "create", "server": {**SERVER, "flavorRef": "mine"}}, "server"),
        ({"on_start": "create", "server": {**SERVER, "networks": [{"port": "1"}]}}, "server"),
        ({"on_start": "create", "server": {**SERVER, "user_data": "no base64!"}}, "server"),
        ({"on_start": "create", "server": {**SERVER, "metadata": {"climate:a": ""}}}, "server"),
        ({"on_start": "create", "server": {**SERVER, "metadata": {"a": "b" * 256}}}, "server"),
        ({"on_start": "create", "server": SERVER, "amount": 101}, "amount"),
        ({"ready_text": "login:"}, "ready_text"),
        ({"on_start": "create", "server": SERVER, "ready_text": ""}, "ready_text"),
        ({"ready_port": 22}, "ready_port"),
        ({"on_start": "create", "server": SERVER, "ready_port": 0}, "ready_port"),
        ({"on_start": "create", "server": SERVER, "ready_port": 65_536}, "ready_port"),
        ({**NO_NETWORK, "ready_port": 22}, "ready_port"),
        ({"on_start": "build"}, "on_start"),
        ({"on_end": "burn"}, "on_end"),
    ],
)
def test_rejects_contradictory_params_at_their_field(params: dict[str, Any], where: str) -> None:
    assert list(refusal(**params)) == [where]


def test_requests_a_server_of_the_reserved_flavor() -> None:
    server = {**SERVER, "networks": "none", "metadata": {"a": "b"}}
    boot = Boot(reservation_id="r", name="lease", amount=2, known=0, server=server)
    assert request(boot, 2) == {
        "imageRef": "cirros",
        "networks": "none",
        "flavorRef": "r",
        "name": "lease-2",
        "metadata": {"a": "b", "climate:reservation": "r", "climate:number": "2"},
    }


def test_servers_have_the_requested_name() -> None:
    server = {**SERVER, "name": "web"}
    boot = Boot(reservation_id="r", name="lease", amount=1, known=0, server=server)
    assert request(boot, 1)["name"] == "web"
