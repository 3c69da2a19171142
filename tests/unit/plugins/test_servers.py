"""What can be asked of servers that climate boots, and what Nova is asked for each."""

from typing import Any

import pytest
from marshmallow import ValidationError

from climate.plugins.instances.cloud import Boot
from climate.plugins.instances.flavor_plugin import FlavorSchema
from climate.plugins.instances.nova_servers import request
from climate.plugins.instances.plugin import InstanceSchema

ROOM = {
    "amount": 2,
    "vcpus": 1,
    "memory_mb": 64,
    "disk_gb": 1,
    "affinity": None,
    "resource_properties": "",
}
SERVER: dict[str, Any] = {"imageRef": "cirros"}


def refusal(**asked: Any) -> Any:
    with pytest.raises(ValidationError) as caught:
        InstanceSchema().load({**ROOM, **asked})
    return caught.value.messages


def test_room_alone_is_what_who_says_nothing_gets() -> None:
    for nothing in ({}, {"on_start": None, "on_end": None, "server": None}):
        for schema, asked in ((InstanceSchema, ROOM), (FlavorSchema, {"flavor_id": "a"})):
            loaded = schema().load({**asked, "amount": 2, **nothing})
            life = [loaded[name] for name in ("on_start", "on_end", "server")]
            assert life == ["nothing", "delete", None]


def test_servers_cannot_be_kept_and_are_told_what_can() -> None:
    [reason] = refusal(on_end="keep")["on_end"]
    assert "other leases" in reason
    assert "snapshot" in reason


@pytest.mark.parametrize(
    ("asked", "where"),
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
        ({"on_start": "build"}, "on_start"),
        ({"on_end": "burn"}, "on_end"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is(asked: dict[str, Any], where: str) -> None:
    assert list(refusal(**asked)) == [where]


def test_nova_is_asked_for_a_server_of_the_reservations_flavor() -> None:
    server = {**SERVER, "networks": "none", "metadata": {"a": "b"}}
    boot = Boot(reservation_id="r", name="lease", amount=2, known=0, server=server)
    assert request(boot, 2) == {
        "imageRef": "cirros",
        "networks": "none",
        "flavorRef": "r",
        "name": "lease-2",
        "metadata": {"a": "b", "climate:reservation": "r", "climate:number": "2"},
    }


def test_servers_have_the_name_that_was_asked_for() -> None:
    server = {**SERVER, "name": "web"}
    one = Boot(reservation_id="r", name="lease", amount=1, known=0, server=server)
    assert request(one, 1)["name"] == "web"
