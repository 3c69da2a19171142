"""The OpenAPI 3.1 document of v2."""

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from climate.api.app import OPEN, ROUTES
from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES
from tests.support.service import Story, hosts

DOCUMENT = "/v2/openapi.json"


@pytest.fixture
def document(story: Story) -> dict[str, Any]:
    return dict(story.ok("GET", DOCUMENT, token="not a token"))


def test_the_document_contains_all_resource_types(make_story: MakeStory) -> None:
    schemas = make_story(manager__plugins=HOSTS_AND_INSTANCES).ok("GET", DOCUMENT)["components"][
        "schemas"
    ]
    assert "amount" in schemas["params.virtual-instance"]["required"]
    assert len(schemas["ReservationRequest"]["properties"]["params"]["anyOf"]) == 2


def test_the_document_describes_routes_tokens_statuses_and_requests(
    document: dict[str, Any],
) -> None:
    served = {
        (method.lower(), re.sub(r"<(\w+)>", r"{\1}", path))
        for method, path, *_ in (*OPEN, *ROUTES)
        if path.startswith("/v2")
    }
    opened = {route.template for route in OPEN}
    described = {(method, path) for path, found in document["paths"].items() for method in found}
    assert described == served
    assert len(served) > 10
    for path, methods in document["paths"].items():
        for operation in methods.values():
            is_open = path in opened
            assert operation["security"] == ([] if is_open else [{"token": []}]), path
            assert ("401" in operation["responses"]) != is_open
    errors = document["paths"]["/v2/leases"]["post"]["responses"]
    assert {"413", "503"} < errors.keys()
    for code in ("backend_unavailable", "identity_unavailable", "enforcement_unavailable"):
        assert code in errors["503"]["description"]
    assert "503" in document["paths"]["/v2/leases"]["get"]["responses"]
    schemas = document["components"]["schemas"]
    params = schemas["ReservationRequest"]["properties"]["params"]
    assert params["anyOf"] == [{"$ref": "#/components/schemas/params.physical-host"}]
    host = schemas["params.physical-host"]
    assert sorted(host["required"]) == ["max", "min"]
    request = schemas["LeaseRequest"]
    assert host["additionalProperties"] is request["additionalProperties"] is False
    for name in ("end", "end_by", "before_end"):
        assert request["properties"][name]["format"] == "date-time", name


def test_answers_and_problems_have_the_described_keys(
    story: Story, document: dict[str, Any]
) -> None:
    taken = story.ok("POST", "/v2/leases", story.asking(reservations=[hosts(3, 3)]))
    page = story.ok("GET", "/v2/leases")
    schemas = document["components"]["schemas"]
    lease = page["leases"][0]
    for name, body in [
        ("LeasePage", page),
        ("Lease", lease),
        ("Reservation", lease["reservations"][0]),
        ("Event", lease["events"][0]),
        ("Resource", story.ok("GET", "/v2/resources")["resources"][0]),
        ("Notification", story.published()[0]),
    ]:
        assert list(schemas[name]["properties"]) == list(body), name
    assert schemas["Problem"]["additionalProperties"] is True
    stale = {"If-Match": '"stale"'}
    for problem in (
        story.problem(409, "POST", "/v2/leases", story.asking(reservations=[hosts(2, 2)])),
        story.problem(409, "POST", "/v2/leases", story.asking(reservations=[hosts()] * 2)),
        story.problem(412, "DELETE", f"/v2/leases/{taken['id']}", headers=stale),
        story.problem(400, "POST", "/v2/leases", {"nmae": "x"}),
    ):
        assert problem.keys() <= schemas["Problem"]["properties"].keys()


def test_answers_match_their_schemas(make_story: MakeStory) -> None:
    story = make_story(limits__enabled=True)
    story.register(1)
    document = story.ok("GET", DOCUMENT)
    for path, query in [
        ("/v2/resources", ""),
        ("/v2/resources", "?bookings=true"),
        ("/v2/limits", ""),
    ]:
        answer = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
        schema = {**answer["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(story.ok("GET", path + query))


def test_a_dry_run_has_no_headers_of_a_stored_lease(document: dict[str, Any]) -> None:
    answers = document["paths"]["/v2/leases"]["post"]["responses"]
    assert list(answers["201"]["headers"]) == ["ETag", "Location"]
    assert "headers" not in answers["200"]
    shown = document["paths"]["/v2/leases/{lease_id}"]["get"]["responses"]
    assert list(shown["200"]["headers"]) == list(shown["304"]["headers"]) == ["ETag"]


def test_each_operation_belongs_to_a_described_group(document: dict[str, Any]) -> None:
    groups = [tag["name"] for tag in document["tags"] if tag["description"]]
    operations = [
        operation for methods in document["paths"].values() for operation in methods.values()
    ]
    assert {name for operation in operations for name in operation["tags"]} == set(groups)


def test_discovery_and_links_follow_the_path_of_the_service(story: Story) -> None:
    versions = story.call("GET", "/").get_json()["versions"]
    assert [version["id"] for version in versions] == ["v1.0", "v2.0"]
    links = {link["rel"]: link["href"] for link in story.ok("GET", "/v2")["version"]["links"]}
    assert links["describedby"] == f"http://localhost{DOCUMENT}"
    base = "https://localhost/reservation"
    response = story.http.get(DOCUMENT, base_url=base)
    assert response.get_json()["servers"] == [{"url": "/reservation"}]
    created = story.http.post("/v2/leases", json=story.asking(), base_url=base)
    assert created.headers["Location"].startswith("/reservation/v2/leases/")
