"""The entries of calendar feeds: their links, status, windows and number."""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.notifications import feed as core_feed
from climate.core.notifications.feed import MOST_ENTRIES, FeedScope
from climate.db.notifications import feed_leases
from climate.db.notifications import feeds as stored_feeds
from climate.db.tables.leases import AllocationRow, LeaseRow, ReservationRow
from climate.manager.notifications import feeds
from tests.api.v2.feeds.test_feeds import ALICE, BOB, entries, feed
from tests.conftest import MakeStory
from tests.support.provisioners import plan, preparations, report
from tests.support.service import Story

ADMIN, EVE = "boss:ops:admin", "eve:shop"
STATEMENTS = {FeedScope.LEASE: 5, FeedScope.PROJECT: 5, FeedScope.RESOURCE: 7}


def lease(story: Story, first: float = 60, last: float = 120, token: str = ALICE) -> dict[str, Any]:
    """Create a lease of the first host."""
    return dict(story.ok("POST", "/v2/leases", story.asking(first, last), token=token))


def targets(story: Story, lease_id: str) -> list[tuple[str, str]]:
    """Return the scope and the id of each kind of feed that shows a lease of the project lab."""
    [host] = story.hosts_of(lease_id)
    return [("lease", lease_id), ("project", "lab"), ("resource", host)]


def book(story: Story, numbers: Iterable[int], token: str) -> None:
    """Copy the first lease to other times: for each number, 20 minutes after the last number."""
    user_id, project_id = token.split(":")
    models = (LeaseRow, ReservationRow, AllocationRow)
    rows: dict[Any, list[dict[str, Any]]] = {model: [] for model in models}
    with story.runtime.database.engine.begin() as connection:
        lease, reservation, allocation = (
            dict(connection.execute(sa.select(model.__table__).limit(1)).mappings().one())
            for model in models
        )
        del allocation["id"], allocation["whole_id"]
        for number in numbers:
            start = story.clock.now() + timedelta(minutes=20 * number)
            end, lease_id, id_ = start + timedelta(minutes=10), str(uuid.uuid4()), str(uuid.uuid4())
            owner = {"user_id": user_id, "project_id": project_id}
            rows[LeaseRow].append(
                {**lease, **owner, "id": lease_id, "start_at": start, "end_at": end}
            )
            rows[ReservationRow].append({**reservation, "id": id_, "lease_id": lease_id})
            rows[AllocationRow].append(
                {**allocation, "reservation_id": id_, "start_at": start, "busy_until": end}
            )
        for model in models:
            table = model.__table__
            assert isinstance(table, sa.Table)
            connection.execute(sa.insert(table), rows[model])


@contextmanager
def statements(story: Story) -> Iterator[list[str]]:
    """Collect the SQL statements that the service executes."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    engine = story.runtime.database.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def moment(value: Any) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%SZ}"


def event(text: str) -> dict[str, str]:
    """Return the properties of the single entry in a file."""
    unfolded = text.replace("\r\n ", "")
    inside = unfolded.partition("BEGIN:VEVENT\r\n")[2].partition("END:VEVENT")[0]
    return {key: value for key, _, value in (line.partition(":") for line in inside.splitlines())}


def test_an_entry_links_to_the_page_of_its_lease_at_the_address_of_the_request(
    story: Story,
) -> None:
    id_ = lease(story)["id"]
    secret_path = feed(story, "project", "lab")["url"].removeprefix("http://localhost")
    for path in (f"/v2/leases/{id_}/calendar.ics", secret_path):
        for site, root in (
            ("http://localhost", ""),
            ("https://climate.localhost:8443", "/climate"),
        ):
            answer = story.http.get(path, base_url=f"{site}{root}", headers={"X-Auth-Token": ALICE})
            link = event(answer.get_data(as_text=True))["URL"]
            assert link == f"{site}{root}/console/leases/{id_}"
    page = story.http.get(link.removeprefix(f"{site}{root}"), headers={"Accept": "text/html"})
    assert (page.status_code, page.mimetype) == (200, "text/html")


def test_the_address_of_the_request_is_part_of_the_entity_tag(story: Story) -> None:
    lease(story)
    path = feed(story, "project", "lab")["url"].removeprefix("http://localhost")
    tags = {
        story.http.get(path, base_url=site).headers["ETag"]
        for site in ("http://a.example", "http://b.example", "https://a.example")
    }
    assert len(tags) == 3


def test_an_entry_has_no_link_without_a_console(make_story: MakeStory) -> None:
    story = make_story(console__enabled=False)
    story.register(1)
    id_ = lease(story)["id"]
    path, condition = f"/v2/leases/{id_}/calendar.ics", {"If-Match": '"old"'}
    story.problem(412, "GET", path, token=ALICE, headers=condition)
    text = story.call("GET", path, token=ALICE).get_data(as_text=True)
    assert "URL" not in event(text)
    [entry] = entries(story, feed(story, "project", "lab")["url"])
    assert "url" not in entry.contents


def test_only_the_entry_of_an_existing_lease_that_the_reader_may_see_has_a_link(
    story: Story,
) -> None:
    own = lease(story)
    [host] = story.hosts_of(own["id"])
    [taken] = entries(story, feed(story, "resource", host, BOB)["url"])
    assert "url" not in taken.contents
    url = feed(story, "resource", host, ADMIN)["url"]
    assert entries(story, url)[0].url.value.endswith(f"/console/leases/{own['id']}")
    story.ok("DELETE", f"/v2/leases/{own['id']}", token=ALICE)
    [cancelled] = entries(story, url)
    assert cancelled.status.value == "CANCELLED"
    assert "url" not in cancelled.contents


def test_an_early_end_of_a_running_lease_moves_the_end_of_its_entry(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    id_ = lease(story)["id"]
    urls = [feed(story, *target)["url"] for target in targets(story, id_)]
    story.at(60)
    running = [entries(story, url)[0] for url in urls]
    story.at(10)
    story.ok("PATCH", f"/v2/leases/{id_}", {"end": "now"}, token=ALICE)
    for _ in range(2):  # before and after a manager ends it
        for url, before in zip(urls, running, strict=True):
            [after] = entries(story, url)
            assert (after.uid.value, after.status.value) == (before.uid.value, "CONFIRMED")
            assert moment(after.dtend.value) == story.moment()
            assert after.dtstart.value == before.dtstart.value
            assert int(after.sequence.value) > int(before.sequence.value)
        story.run()
    assert story.ok("GET", f"/v2/leases/{id_}")["status"] == "TERMINATED"


def test_a_running_lease_that_is_deleted_keeps_its_entry_until_the_deletion(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    id_ = lease(story)["id"]
    urls = [feed(story, *target)["url"] for target in targets(story, id_)]
    story.at(60)
    before = [entries(story, url)[0] for url in urls]
    story.at(10)
    story.call("DELETE", f"/v2/leases/{id_}", token=ALICE)
    end, last = story.moment(), [int(entry.sequence.value) for entry in before]
    for _ in range(2):  # while it is DELETING, and after its rows are deleted
        for index, url in enumerate(urls):
            entry = next(item for item in entries(story, url) if item.summary.value == "lease")
            assert (entry.uid.value, entry.status.value) == (before[index].uid.value, "CONFIRMED")
            assert moment(entry.dtend.value) == end
            assert int(entry.sequence.value) > last[index]
            last[index] = int(entry.sequence.value)
        story.run()
    story.problem(404, "GET", f"/v2/leases/{id_}", token=ALICE)


def test_a_lease_that_waits_for_its_hosts_after_its_start_is_tentative(
    make_story_everywhere: MakeStory,
) -> None:
    story = make_story_everywhere(provisioning__enabled=True, provisioning__prior=600.0)
    story.register(1)
    body = story.asking(start_when="ready")
    id_ = story.ok("POST", "/v2/leases", body, token=ALICE)["id"]
    url = feed(story, "lease", id_)["url"]
    [planned] = entries(story, url)
    story.at(30)
    plan(story)
    [task] = preparations(story)
    report(story, task, "accepted", claim_seconds=3600)
    story.at(30)
    [waiting] = entries(story, url)
    story.at(1)
    report(story, task, "ready")
    story.run()
    [running] = entries(story, url)
    assert story.ok("GET", f"/v2/leases/{id_}")["status"] == "ACTIVE"
    versions = [planned, waiting, running]
    assert [item.status.value for item in versions] == ["CONFIRMED", "TENTATIVE", "CONFIRMED"]
    sequences = [int(item.sequence.value) for item in versions]
    assert sequences == sorted(set(sequences))
    changes = [item.last_modified.value for item in versions]
    assert changes == sorted(set(changes))


def test_a_lease_with_its_planned_start_is_never_tentative(story: Story) -> None:
    id_ = lease(story)["id"]
    url, seen = feed(story, "lease", id_)["url"], set()
    for _ in range(4):
        seen.add(entries(story, url)[0].status.value)
        story.at(40)
    assert seen == {"CONFIRMED"}


def test_leases_of_others_that_touch_are_one_entry(make_story_everywhere: MakeStory) -> None:
    story = make_story_everywhere(DEFAULT__cleaning_time=10)
    story.register(1)
    first = lease(story, 60, 120)
    [host] = story.hosts_of(first["id"])
    lease(story, 130, 190, "eve:shop")
    lease(story, 230, 290)
    taken = entries(story, feed(story, "resource", host, BOB)["url"])
    assert [(moment(item.dtstart.value), moment(item.dtend.value)) for item in taken] == [
        (story.moment(60), story.moment(200)),
        (story.moment(230), story.moment(300)),
    ]
    assert {item.summary.value for item in taken} == {"Taken"}
    assert {item.sequence.value for item in taken} == {"0"}
    assert len({item.uid.value for item in taken}) == 2
    assert not {"description", "created", "url"} & {key for item in taken for key in item.contents}


def test_a_feed_shows_at_most_2000_entries_those_that_are_not_over_first(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_ENTRIES == 2000
    for module in (feed_leases, stored_feeds, core_feed):
        monkeypatch.setattr(module, "MOST_ENTRIES", 20)
    story = make_story()
    story.register(1)
    first = lease(story, 0, 10, EVE)
    [host] = story.hosts_of(first["id"])
    book(story, range(-15, 0), BOB)
    book(story, range(1, 15), EVE)
    nearest = {story.clock.now() + timedelta(minutes=20 * number) for number in range(-5, 15)}
    for token in (ADMIN, BOB, EVE, ALICE):  # all named, the past named, the rest named, none
        url = feed(story, "resource", host, token)["url"]
        secret = url.rpartition("/")[2].removesuffix(".ics")
        shown = feeds.read(story.runtime, secret)[1]
        assert len(shown) == 20
        assert {item.window.start for item in shown} == nearest


@pytest.mark.parametrize("scope", list(FeedScope))
def test_the_number_of_statements_of_a_read_does_not_depend_on_the_leases(
    make_story: MakeStory, scope: FeedScope
) -> None:
    story = make_story()
    story.register(1)
    id_ = lease(story, 0, 10, EVE)["id"]
    target = {"lease": id_, "project": "shop", "resource": story.hosts_of(id_)[0]}[scope]
    url = feed(story, scope, target, EVE)["url"]
    lease(story, 10, 20, BOB)
    story.http.get(url)  # stores the time of the read
    counts = []
    for added in (range(1, 3), range(3, 30)):
        book(story, added, EVE)
        book(story, [-number for number in added], BOB)
        with statements(story) as sent:
            assert story.http.get(url).status_code == 200
        counts.append(len(sent))
    assert counts[0] == counts[1] <= STATEMENTS[scope]


def test_a_deleted_lease_stays_cancelled_for_thirty_days(story: Story) -> None:
    id_ = lease(story)["id"]
    url = feed(story, "project", "lab")["url"]
    story.ok("DELETE", f"/v2/leases/{id_}", token=ALICE)
    story.clock.advance(timedelta(days=30).total_seconds() - 1)
    story.dispatcher.upkeep.tidy()
    assert [entry.status.value for entry in entries(story, url)] == ["CANCELLED"]
    story.clock.advance(1)
    assert entries(story, url) == []
