"""The Python client against a service: leases, pages, errors, retries."""

import datetime as dt
import io
import socket
from typing import Any

import pytest
import requests
from keystoneauth1.noauth import NoAuth
from keystoneauth1.session import Session
from requests.adapters import HTTPAdapter

from climate import client as climate
from climate.client import Changed, Client, resources, transport
from climate.client.leases import Ambiguous, Leases
from climate.client.reservations import NoSuchAlternative
from climate.client.resources import StatsUpdate
from tests.client.conftest import run
from tests.conftest import NOON
from tests.support.service import Story

HOUR = dt.timedelta(hours=1)
LATER: dict[str, Any] = {"start": NOON + HOUR, "duration": HOUR}


class LosingAnswers(HTTPAdapter):
    """Sends each request, and loses the first ``count`` answers of a method."""

    def __init__(self, method: str, count: int) -> None:
        super().__init__()
        self.method, self.left = method, count

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        response = super().send(request, **options)
        if request.method == self.method and self.left > 0:
            self.left -= 1
            raise requests.ConnectionError("Connection reset by peer")
        return response


class BadGateway(HTTPAdapter):
    """Answers the first ``count`` requests as a proxy whose service restarts."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        if self.left == 0:
            return super().send(request, **options)
        self.left -= 1
        response = requests.Response()
        response.status_code, response.url = 502, str(request.url)
        response.headers["Content-Type"] = "text/html"
        response.raw = io.BytesIO(b"<html>Bad Gateway</html>")
        return response


class FailingTls(HTTPAdapter):
    """Fails in the handshake of TLS, and counts the requests."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason, self.count = reason, 0

    def send(self, request: requests.PreparedRequest, **_options: Any) -> requests.Response:  # type: ignore[override]
        self.count += 1
        raise requests.exceptions.SSLError(self.reason)


def unreliable(url: str, method: str, count: int) -> Client:
    """Return a client whose connection loses answers."""
    return through(LosingAnswers(method, count), url)


def through(adapter: HTTPAdapter, url: str) -> Client:
    """Return a client that sends its requests through ``adapter``."""
    http = requests.Session()
    http.mount(f"{url.partition(':')[0]}://", adapter)
    return climate.connect(session=Session(NoAuth(url), session=http), endpoint=url)


def test_a_lease_has_times_and_an_etag(client: Client) -> None:
    lease = client.leases.create("mine", reservations=[climate.hosts(1, 2)], **LATER)
    assert (lease.start, lease.end) == (NOON + HOUR, NOON + 2 * HOUR)
    assert lease.to_dict()["start"] == "2030-01-15T13:00:00Z"
    assert client.leases.get(lease.id) == lease
    client.leases.update(lease.id, if_match=lease.etag, name="ours")
    with pytest.raises(climate.Changed) as caught:
        client.leases.update(lease.id, if_match=lease.etag, name="theirs")
    assert caught.value.etag == client.leases.get(lease.id).etag


def test_an_extension_does_not_follow_a_change_in_between(
    client: Client, url: str, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = client.leases.create("mine", reservations=[climate.hosts()], **LATER)
    change = Leases._change
    ends = iter(["2030-01-15T14:30:00Z", "2030-01-15T14:45:00Z"])

    def change_after_another(*given: Any) -> Any:
        story.ok("PATCH", f"/v2/leases/{lease.id}", {"end": next(ends)})
        return change(*given)

    monkeypatch.setattr(Leases, "_change", change_after_another)
    with pytest.raises(climate.Changed):
        client.leases.extend(lease.id, by=HOUR)
    none = ("--os-auth-type", "none", "--os-endpoint", url)
    assert "has changed" in run(*none, "lease", "extend", "mine", "--by", "1h").errors
    assert story.ok("GET", f"/v2/leases/{lease.id}")["end"] == "2030-01-15T14:45:00Z"


def test_a_lost_answer_creates_no_second_lease(url: str, story: Story) -> None:
    lease = unreliable(url, "POST", 2).leases.create(
        "once", reservations=[climate.hosts()], **LATER
    )
    assert [item["id"] for item in story.ok("GET", "/v2/leases")["leases"]] == [lease.id]


def test_a_proxy_whose_service_restarts_is_tried_again(url: str) -> None:
    assert through(BadGateway(2), url).me().user.id == "admin"
    with pytest.raises(climate.TemporarilyUnavailable, match="/v2 answers 502"):
        through(BadGateway(3), url).me()


def test_a_change_whose_answer_is_lost_is_not_repeated(url: str, client: Client) -> None:
    lease = client.leases.create("mine", reservations=[climate.hosts()], **LATER)
    with pytest.raises(climate.ServiceUnreachable, match="Connection reset by peer") as caught:
        unreliable(url, "PATCH", 1).leases.update(lease.id, name="ours")
    assert caught.value.url == f"{url}/v2"


def test_lists_request_the_next_page_when_it_is_needed(client: Client, story: Story) -> None:
    for number in range(4):
        client.leases.create(f"lease {number}", reservations=[climate.hosts()], **LATER)
    found = client.leases.list(limit=2, sort="name", status=["PENDING", "ACTIVE"])
    assert next(found).name == "lease 0"
    story.ok("DELETE", f"/v2/leases/{client.leases.find('lease 3').id}")
    assert [lease.name for lease in found] == ["lease 1", "lease 2"]


def test_refuses_times_without_a_zone(client: Client) -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        client.leases.create("mine", start=dt.datetime(2030, 1, 15, 13), duration=3600)  # noqa: DTZ001


def test_an_error_has_the_members_of_the_problem(client: Client) -> None:
    with pytest.raises(climate.InvalidRequest) as caught:
        client.leases.create("mine", reservations=[climate.hosts(may=1, nmae=1)], **LATER)
    error = caught.value
    assert (error.status, error.code, error.title) == (400, "invalid_input", "Invalid request")
    assert {bad.pointer for bad in error.errors} == {
        "#/reservations/0/params/may",
        "#/reservations/0/params/nmae",
    }
    assert error.members["detail"] == str(error)
    assert error.request_id
    with pytest.raises(climate.NotFound):
        client.leases.get("00000000-0000-0000-0000-000000000000")


def test_a_refusal_can_be_accepted_in_each_of_its_alternatives(
    client: Client, story: Story
) -> None:
    story.ok("PUT", "/v1/os-hosts/1", {"rack": "r1"})
    client.leases.create(
        "first", reservations=[climate.hosts(resource_properties='["==", "$rack", "r1"]')], **LATER
    )
    wanted = climate.hosts(resource_properties='["==", "$rack", "r1"]')
    with pytest.raises(climate.NotEnoughResources) as caught:
        client.leases.create("second", reservations=[wanted], **LATER)
    refusal = caught.value
    assert (refusal.reservation, refusal.asked, refusal.matching, refusal.free) == (0, 1, 1, 0)
    assert [blocker.lease_name for blocker in refusal.blocked_by] == ["first"]
    by_kind = {alternative.differs: n for n, alternative in enumerate(refusal.alternatives, 1)}
    assert by_kind.keys() == {"later", "other"}
    later = client.leases.accept(refusal, by_kind["later"])
    assert (later.name, later.start) == ("second", NOON + 2 * HOUR)
    other = client.leases.accept(refusal, by_kind["other"])
    assert other.start == NOON + HOUR
    assert other.reservations[0].params["resource_properties"] == ""
    checked = {**LATER, "reservations": [wanted]}
    with pytest.raises(climate.NotEnoughResources) as caught:
        client.leases.check("third", **checked)
    assert client.leases.accept(caught.value, 1).name == "third"
    with pytest.raises(NoSuchAlternative, match="There is no alternative 3; there are: 1 to 2"):
        client.leases.accept(refusal, 3)


def test_an_alternative_of_a_refused_change_changes_the_lease(client: Client) -> None:
    first = client.leases.create("first", reservations=[climate.hosts(4)], **LATER)
    client.leases.create(
        "next", start=NOON + 3 * HOUR, duration=HOUR, reservations=[climate.hosts(4)]
    )
    with pytest.raises(climate.NotEnoughResources) as caught:
        client.leases.extend(first.id, by=2 * HOUR)
    kinds = [alternative.differs for alternative in caught.value.alternatives]
    with pytest.raises(climate.NotEnoughResources) as caught:
        client.leases.check_update(first.id, end=NOON + 4 * HOUR)
    changed = client.leases.accept(caught.value, kinds.index("shorter") + 1)
    assert (changed.id, changed.end) == (first.id, NOON + 3 * HOUR)


def test_finds_a_lease_that_is_not_over_by_its_name(client: Client, story: Story) -> None:
    old = client.leases.create("name", reservations=[climate.hosts()], start="now", duration=60)
    story.at(2)
    assert client.leases.find("name").id == old.id
    new = client.leases.create("name", reservations=[climate.hosts()], **LATER)
    assert client.leases.find("name").id == new.id
    client.leases.create("name", reservations=[climate.hosts()], **LATER)
    with pytest.raises(Ambiguous):
        client.leases.find("name")


def test_a_page_that_is_not_climates_is_no_answer(url: str) -> None:
    stranger = climate.connect(auth_type="none", endpoint=f"{url}/console", environ={})
    with pytest.raises(
        climate.UnexpectedAnswer, match="is not climate's API v2: it answers 200 with a web"
    ):
        stranger.me()


def test_changes_properties_of_the_version_that_was_read(client: Client) -> None:
    host = client.resources.get("1")
    changed = client.resources.update("1", {"rack": "r1"}, if_match=host.etag)
    assert (changed.properties["rack"], changed.etag) == ("r1", client.resources.get("1").etag)
    with pytest.raises(Changed):
        client.resources.update("1", {"rack": None}, if_match=host.etag)
    assert "rack" not in client.resources.update("1", {"rack": None}).properties


def test_pushes_stats_in_batches(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_BATCH", 2)
    updates: list[StatsUpdate] = [
        {"resource": f"sim-{number}", "generation": 1, "stats": {"load": number}}
        for number in range(1, 6)
    ]
    found = list(client.resources.update_stats(updates))
    assert [each.result for each in found] == [*["applied"] * 4, "unknown"]
    assert [each.resource for each in found] == [update["resource"] for update in updates]
    assert client.resources.find("sim-4").properties["load"] == "4"
    assert next(client.resources.update_stats(updates)).result == "unchanged"
    assert list(client.resources.update_stats([])) == []


def test_capacity_resources_feeds_and_subscriptions_have_types(client: Client) -> None:
    end = NOON + 24 * HOUR
    client.leases.create("mine", reservations=[climate.hosts(3)], **LATER)
    assert [s.free for s in client.capacity.availability("physical:host", end=end)] == [4, 1, 4]
    found = client.capacity.search([climate.hosts(4)], 2 * HOUR, end_by=end, limit=1)
    assert (found.windows[0].start, found.forbidden) == (NOON + 2 * HOUR, [])
    calendar = client.capacity.calendar("physical:host", end=end)
    assert (calendar.total, calendar.leases[0].name) == (4, "mine")
    assert client.resources.find("sim-4").properties["vcpus"] == "64"
    assert client.resources.find("2").name == "sim-2"
    assert "physical:host" in [each.name for each in client.resources.types()]
    assert "vcpus" in [each.name for each in client.resources.properties("physical:host")]
    assert client.me().project.id == "admin"
    assert client.capacity.limits().parties[0].scope == "project"
    feed = client.feeds.create("project", "admin")
    assert str(feed.url).endswith(".ics")
    assert [(each.id, each.url) for each in client.feeds.list()] == [(feed.id, None)]
    client.feeds.delete(feed.id)
    assert list(client.feeds.list()) == []


@pytest.mark.parametrize(
    ("reason", "hint"), [("WRONG_VERSION_NUMBER", True), ("CERTIFICATE_VERIFY_FAILED", False)]
)
def test_an_error_of_tls_is_not_repeated_and_may_mean_plain_http(reason: str, hint: bool) -> None:
    adapter = FailingTls(reason)
    with pytest.raises(climate.TlsFailed, match=reason) as caught:
        through(adapter, "https://127.0.0.1:1").me()
    assert adapter.count == 1
    assert str(caught.value).endswith("write http:// in its URL") == hint


def test_a_service_that_leaves_the_tls_handshake_unanswered_may_speak_plain_http(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_CONNECT_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        client = climate.connect(auth_type="none", endpoint=url, environ={})
        with pytest.raises(climate.TlsFailed, match=r"handshake within 0\.1 s\. .* write http://"):
            client.me()
