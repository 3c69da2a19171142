"""A notification is written with its change, numbered after the commit, and kept."""

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.notifications.event_type import EventType
from climate.db.notifications import outbox
from tests.support.emitters import Broken, log
from tests.support.outbox_rows import write, write_many
from tests.support.service import Story, host_reservation


def count(story: Story) -> int:
    """Return how many notifications there are, numbered or not."""
    with story.runtime.database.read() as session:
        return session.scalar(sa.text("SELECT count(*) FROM outbox")) or 0


# A notification and its change.


def test_every_change_is_announced_and_no_rejected_request(story: Story) -> None:
    lease = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    path = f"/v1/leases/{lease['id']}"
    assert count(story) == 1
    story.refused(409, "POST", "/v1/leases", story.lease_body(60, 120))
    story.refused(400, "POST", "/v1/leases", story.lease_body(60, 30))
    story.refused(400, "PUT", path, {"end_date": story.date(30)})
    story.refused(404, "DELETE", "/v1/leases/none")
    assert count(story) == 1
    story.ok("PUT", path, {"name": "another"})
    story.ok("DELETE", path)
    assert story.event_types(lease["id"]) == ["lease.create", "lease.update", "lease.delete"]


def test_a_change_that_cannot_be_announced_is_rolled_back(story: Story) -> None:
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


# Numbers.


def test_numbers_have_no_gaps_and_follow_the_order_of_each_lease(story_everywhere: Story) -> None:
    story = story_everywhere
    leases = [story.reserve(60, 120) for _ in range(3)]
    story.run()
    for minutes in (50, 9, 1, 60):
        story.at(minutes)
    notifications = story.published()
    assert [item["seq"] for item in notifications] == list(range(1, len(notifications) + 1))
    for lease in leases:
        assert story.event_types(lease["id"]) == [
            "lease.create",
            "lease.event.before_start_lease",
            "lease.event.before_start_lease",
            "lease.event.before_start_lease",
            "lease.event.start_lease",
            "lease.event.before_end_lease",
            "lease.event.end_lease",
        ]


def test_a_rolled_back_change_leaves_no_gap(story_everywhere: Story) -> None:
    story = story_everywhere
    write(story, "lease", "first")

    def work(session: Session) -> None:
        payload = {"lease_id": "lease", "project_id": "admin"}
        outbox.write(session, EventType("never"), payload, story.clock.now())
        raise Broken

    with pytest.raises(Broken):
        story.runtime.database.write(work)
    write(story, "lease", "second")
    story.relay.flush()
    assert [(item["seq"], item["event_type"]) for item in log(story)] == [
        (1, "first"),
        (2, "second"),
    ]


@pytest.mark.parametrize("backend", ["postgresql", "mariadb"], indirect=True)
def test_a_reader_misses_nothing_when_transactions_commit_out_of_order(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    payload = {"lease_id": "slow", "project_id": "admin"}
    with Session(story.runtime.database.engine) as slow:
        outbox.write(slow, EventType("written first"), payload, story.clock.now())
        write(story, "fast", "committed first")
        seen = [(item["seq"], item["event_type"]) for item in story.published()]
        assert seen == [(1, "committed first")]
        slow.commit()
    story.relay.flush()
    assert [(item["seq"], item["event_type"]) for item in log(story, after=1)] == [
        (2, "written first")
    ]


# Reading.


def test_a_reader_continues_after_its_cursor(story: Story) -> None:
    write_many(story, 101)
    story.relay.flush()
    assert (len(log(story)), len(log(story, limit=1000))) == (100, 101)
    seen: list[int] = []
    while page := log(story, after=seen[-1] if seen else 0, limit=40):
        assert len(page) <= 40
        seen += [item["seq"] for item in page]
    assert seen == list(range(1, 102))
    assert log(story, after=2**63 - 1) == []


def test_invalid_numbers_in_a_query_are_rejected_with_their_name(story: Story) -> None:
    after = ["-1", "x", "", "1.5", "%C2%B2", str(2**63)]
    limit = ["-1", "1001", "ten", ""]
    for name, values in (("after", after), ("limit", limit)):
        for value in values:
            problem = story.problem(400, "GET", f"/v2/notifications?{name}={value}")
            assert problem["code"] == "invalid_input", value
            assert problem["detail"].startswith(name), value


def test_users_read_their_projects_notifications_and_an_admin_all(story: Story) -> None:
    write(story, "mine", "first", project_id="lab")
    write(story, "theirs", "second", project_id="office")
    write(story, "mine", "third", project_id="lab")
    story.relay.flush()

    def read(token: str | None, after: int = 0) -> list[int]:
        path = f"/v2/notifications?after={after}"
        return [item["seq"] for item in story.ok("GET", path, token=token)["notifications"]]

    assert read("alice:lab") == [1, 3]
    assert read("alice:lab", after=1) == [3]
    assert read("bob:office") == [2]
    assert read("carol:garage") == []
    assert read(None) == read("root:admin:admin") == [1, 2, 3]
