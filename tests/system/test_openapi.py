"""The OpenAPI document of v2, as the validator of the OpenAPI community reads it."""

from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES


def test_the_document_is_valid(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=HOSTS_AND_INSTANCES)
    document = story.ok("GET", "/v2/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
