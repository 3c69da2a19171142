"""If-Match while others change the lease between the request's read and its lock."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from climate.api.v2.leases import views
from climate.db.tables.leases import EventRow
from tests.support.service import Story

PATCH, DELETE = "update_lease", "delete_lease"


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, use_case: str, change: Callable[[], object]
) -> list[str]:
    """Make ``change`` once, just before the use case locks the lease; return the calls."""
    genuine, calls = getattr(views, use_case), []

    def late(*arguments: Any) -> Any:
        calls.append(use_case)
        if len(calls) == 1:
            change()
        return genuine(*arguments)

    monkeypatch.setattr(views, use_case, late)
    return calls


def claim_an_event(story: Story, lease_id: str) -> None:
    """Change the stored lease in a way that no answer shows."""

    def work(session: Any) -> None:
        rows = sa.update(EventRow).where(EventRow.lease_id == lease_id)
        session.execute(rows.values(attempt=0, owner="manager-1"))

    story.runtime.database.write(work)


def make(story: Story) -> tuple[str, dict[str, str]]:
    """Create a lease; return its path, and the header with its tag."""
    made = story.call("POST", "/v2/leases", story.asking())
    return made.headers["Location"], {"If-Match": made.headers["ETag"]}


def send(story: Story, use_case: str, path: str, seen: dict[str, str]) -> Any:
    if use_case == DELETE:
        return story.call("DELETE", path, headers=seen)
    return story.call("PATCH", path, {"name": "ours"}, headers=seen)


@pytest.mark.parametrize("use_case", [PATCH, DELETE])
def test_a_change_since_the_read_is_refused_under_the_lock(
    story: Story, monkeypatch: pytest.MonkeyPatch, use_case: str
) -> None:
    path, seen = make(story)
    rename = lambda: story.runtime.database.write(  # noqa: E731
        lambda session: session.execute(sa.text("UPDATE leases SET name = 'theirs'"))
    )
    calls = meanwhile(monkeypatch, use_case, rename)
    refused = send(story, use_case, path, seen)
    assert (refused.status_code, len(calls)) == (412, 1)
    shown = story.call("GET", path)
    assert shown.get_json()["name"] == "theirs"
    assert refused.get_json()["etag"] == shown.headers["ETag"]


@pytest.mark.parametrize("use_case", [PATCH, DELETE])
def test_a_change_that_no_answer_shows_does_not_matter(
    story: Story, monkeypatch: pytest.MonkeyPatch, use_case: str
) -> None:
    path, seen = make(story)
    lease_id = path.rpartition("/")[2]
    calls = meanwhile(monkeypatch, use_case, lambda: claim_an_event(story, lease_id))
    assert send(story, use_case, path, seen).status_code in {200, 204}
    assert len(calls) == 2
