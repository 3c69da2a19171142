"""GET /v2/limits: what one may have, and has."""

from tests.conftest import MakeStory
from tests.support.service import Story, host_reservation


def test_what_one_may_have_and_has(story: Story) -> None:
    story.reserve(reservations=[host_reservation(2, 2)])
    shown = story.ok("GET", "/v2/limits")
    assert shown["apply"] is False
    project, user = shown["parties"]
    assert (project["scope"], project["id"]) == ("project", "admin")
    assert (user["scope"], user["id"]) == ("user", "admin")
    assert project["limits"]["hosts"] is None
    assert (project["used"]["leases"], project["used"]["hosts"]) == (1, 2)
    assert project["used"]["host_hours"] == 2.0


def test_the_operators_limits_are_shown(make_story: MakeStory) -> None:
    story = make_story(limits__enabled=True, limits__project_hosts=3)
    shown = story.ok("GET", "/v2/limits", token="me:mine:reader")
    assert shown["apply"] is True
    assert shown["parties"][0]["limits"]["hosts"] == 3
    assert shown["parties"][0]["used"]["leases"] == 0
