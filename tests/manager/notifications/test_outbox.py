"""Notifications are written with their change, numbered when it is committed, and kept."""

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db import outbox
from tests.functional.emitters import Broken, log, write, write_many
from tests.service import Story, host_reservation


def waiting(story: Story) -> int:
    """Return how many notifications there are, numbered or not."""
    with story.runtime.database.read() as session:
        return session.scalar(sa.text("SELECT count(*) FROM outbox")) or 0


# A notification and its change.


def test_what_is_refused_is_not_announced(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    before = waiting(story)
    story.refused(409, "POST", "/v1/leases", story.lease_body(60, 120))
    story.refused(400, "POST", "/v1/leases", story.lease_body(60, 30))
    change = {"end_date": story.date(30)}
    story.refused(400, "PUT", f"/v1/leases/{lease['id']}", change)
    story.refused(404, "DELETE", "/v1/leases/none")
    assert waiting(story) == before == 1


def test_what_cannot_be_announced_does_not_happen(story: Story) -> None:
    lease = story.reserve()
    with story.runtime.database.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON outbox BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    assert story.call("POST", "/v1/leases", story.lease_body()).status_code == 500
    assert story.call("DELETE", f"/v1/leases/{lease['id']}").status_code == 500
    rename = {"name": "another"}
    assert story.call("PUT", f"/v1/leases/{lease['id']}", rename).status_code == 500
    assert story.ok("GET", "/v1/leases")["leases"] == [lease]
    assert len(story.hosts_of(lease["id"])) == 1


def test_every_change_is_announced(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "another"})
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    assert story.told(lease["id"]) == ["lease.create", "lease.update", "lease.delete"]


# Numbers.


def test_numbers_have_no_gaps_and_follow_the_order_of_each_lease(story_everywhere: Story) -> None:
    story = story_everywhere
    leases = [story.reserve(60, 120) for _ in range(3)]
    story.run()
    for minutes in (50, 9, 1, 60):
        story.at(minutes)
    told = story.published()
    assert [one["seq"] for one in told] == list(range(1, len(told) + 1))
    for lease in leases:
        assert story.told(lease["id"]) == [
            "lease.create",
            "lease.event.before_start_lease",
            "lease.event.before_start_lease",
            "lease.event.before_start_lease",
            "lease.event.start_lease",
            "lease.event.before_end_lease",
            "lease.event.end_lease",
        ]


def test_a_change_that_was_rolled_back_leaves_no_gap(story_everywhere: Story) -> None:
    story = story_everywhere
    write(story, "lease", "first")

    def work(session: Session) -> None:
        payload = {"lease_id": "lease", "project_id": "admin"}
        outbox.write(session, "never", payload, story.clock.now())
        raise Broken

    with pytest.raises(Broken):
        story.runtime.database.write(work)
    write(story, "lease", "second")
    story.relay.flush()
    assert [(one["seq"], one["event_type"]) for one in log(story)] == [(1, "first"), (2, "second")]


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_a_reader_misses_nothing_when_transactions_commit_out_of_order(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    payload = {"lease_id": "slow", "project_id": "admin"}
    with Session(story.runtime.database.engine) as slow:
        outbox.write(slow, "written first", payload, story.clock.now())
        write(story, "fast", "committed first")
        seen = [(one["seq"], one["event_type"]) for one in story.published()]
        assert seen == [(1, "committed first")]
        slow.commit()
    story.relay.flush()
    assert [(one["seq"], one["event_type"]) for one in log(story, after=1)] == [
        (2, "written first")
    ]


# Reading.


def test_a_reader_goes_on_from_its_cursor(story_everywhere: Story) -> None:
    story = story_everywhere
    write_many(story, 7)
    story.relay.flush()
    seen: list[int] = []
    while page := log(story, after=seen[-1] if seen else 0, limit=3):
        assert len(page) <= 3
        seen += [one["seq"] for one in page]
    assert seen == list(range(1, 8))


def test_a_page_has_a_hundred_unless_told(story: Story) -> None:
    write_many(story, 101)
    story.relay.flush()
    assert (len(log(story)), len(log(story, limit=1000))) == (100, 101)


@pytest.mark.parametrize(
    "query",
    [
        *("after=-1", "after=x", "after=", "after=1.5", "after=%C2%B2", f"after={2**63}"),
        *("limit=-1", "limit=1001", "limit=ten", "limit="),
    ],
)
def test_a_bad_number_is_refused_with_a_reason(story: Story, query: str) -> None:
    answer = story.call("GET", f"/v2/notifications?{query}")
    assert (answer.status_code, answer.mimetype) == (400, "application/problem+json")
    problem = answer.get_json()
    assert (problem["status"], problem["code"]) == (400, "invalid_input")
    assert problem["detail"].startswith(query.partition("=")[0])


def test_the_largest_number_is_one(story: Story) -> None:
    write(story, "lease", "first")
    story.relay.flush()
    assert log(story, after=2**63 - 1) == []


def test_everybody_reads_what_is_theirs_and_an_admin_reads_all(story: Story) -> None:
    write(story, "mine", "first", project_id="lab")
    write(story, "theirs", "second", project_id="office")
    write(story, "mine", "third", project_id="lab")
    story.relay.flush()

    def read(token: str | None, after: int = 0) -> list[int]:
        path = f"/v2/notifications?after={after}"
        return [one["seq"] for one in story.ok("GET", path, token=token)["notifications"]]

    assert read("alice:lab") == [1, 3]
    assert read("alice:lab", after=1) == [3]
    assert read("bob:office") == [2]
    assert read("carol:garage") == []
    assert read(None) == read("root:admin:admin") == [1, 2, 3]
