"""Without authentication only this machine is served, whatever brought the request here."""

import pytest

from tests.conftest import MakeStory
from tests.service import Story


@pytest.mark.parametrize("address", ["10.0.0.7", "2001:db8::1", "::ffff:10.0.0.7"])
def test_a_caller_on_another_machine_is_refused(story: Story, address: str) -> None:
    answer = story.http.get("/v1/leases", environ_base={"REMOTE_ADDR": address})
    assert answer.status_code == 403
    assert "no authentication" in answer.get_json()["error_message"]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"])
def test_a_caller_on_this_machine_is_served(story: Story, address: str) -> None:
    assert story.http.get("/v1/leases", environ_base={"REMOTE_ADDR": address}).status_code == 200


def test_the_operator_may_open_it_to_the_network(make_story: MakeStory) -> None:
    story = make_story(api__serve_unauthenticated_to_the_network=True)
    answer = story.http.get("/v1/leases", environ_base={"REMOTE_ADDR": "10.0.0.7"})
    assert answer.status_code == 200
