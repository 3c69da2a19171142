"""A service with provisioning and hosts sim-1 .. sim-4, at noon."""

import pytest

from tests.conftest import MakeStory
from tests.support.service import Story

OPTIONS: dict[str, object] = {
    "provisioning__enabled": True,
    "provisioning__prior": 600.0,
    "provisioning__longest": 1800.0,
}


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    story = make_story(**OPTIONS)
    story.register(4)
    return story


@pytest.fixture
def everywhere(make_story_everywhere: MakeStory) -> Story:
    """Return the service on each database in turn."""
    story = make_story_everywhere(**OPTIONS)
    story.register(4)
    return story
