"""The interactive page of v2, its files, and the examples that it offers."""

import gzip
import re
from html.parser import HTMLParser
from importlib.metadata import version
from typing import Any

import pytest

from climate.api.v2.documentation.examples import examples
from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES
from tests.support.service import Story

PAGE = "/v2/docs"


class Targets(HTMLParser):
    """Collects what a page loads, and its inline scripts, styles and handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in {"script", "link", "img", "iframe"}:
            self.loaded.append(given.get("src") or given.get("href") or "")
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)


def _targets(story: Story) -> Targets:
    targets = Targets()
    targets.feed(story.call("GET", PAGE).get_data(as_text=True))
    return targets


def test_the_page_runs_only_scripts_of_this_service(story: Story) -> None:
    response = story.call("GET", PAGE, token="not a token")
    assert (response.status_code, response.mimetype) == (200, "text/html")
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert _targets(story).inline == []


def test_the_page_loads_only_files_that_this_service_has(story: Story) -> None:
    loaded = _targets(story).loaded
    assert len(loaded) == 5
    for target in loaded:
        assert story.call("GET", f"/v2/{target}").status_code == 200, target
    start = story.call("GET", f"{PAGE}/start.js").get_data(as_text=True)
    assert "validatorUrl: null" in start
    assert not re.search(r"https?:|//[a-z]", start)
    assert int(version("flask-swagger-ui").partition(".")[0]) >= 5


def test_files_are_compressed_and_revalidated(story: Story) -> None:
    path = f"{PAGE}/swagger-ui-bundle.js"
    plain = story.call("GET", path)
    packed = story.call("GET", path, headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed.data) == plain.data
    assert len(packed.data) < len(plain.data) / 3
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"
    again = {"If-None-Match": plain.headers["ETag"]}
    assert story.call("GET", path, headers=again).status_code == 304


@pytest.mark.parametrize("name", ["page.html", "index.html", "..", "%2e%2e/page.py", "x"])
def test_other_files_of_the_packages_are_not_served(story: Story, name: str) -> None:
    story.problem(404, "GET", f"{PAGE}/{name}")


def test_the_page_works_under_another_root(story: Story) -> None:
    """All addresses on the page are relative."""
    assert [target for target in _targets(story).loaded if target[:1] in {"", "/"}] == []
    start = story.call("GET", f"{PAGE}/start.js").get_data(as_text=True)
    assert 'url: "openapi.json"' in start


def test_each_example_is_accepted(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=HOSTS_AND_INSTANCES)
    story.register(8)
    offered = examples(story.clock.now().date())
    parents = {
        "lease_id": ("POST /v2/leases", "One host, now"),
        "subscription_id": ("POST /v2/subscriptions", "Starts and ends of leases"),
    }

    def send(route: str, summary: str) -> Any:
        method, path = route.split(" ")
        for name in re.findall(r"<(\w+)>", path):
            id_ = send(*parents[name])["id"] if name in parents else "1"
            path = path.replace(f"<{name}>", id_)
            story.at(1)
        return story.ok(method, path, offered[route][summary])

    for route, bodies in offered.items():
        for summary in bodies:
            send(route, summary)
            for lease in story.ok("GET", "/v2/leases")["leases"]:
                story.ok("DELETE", f"/v2/leases/{lease['id']}")
            story.run()


def test_the_document_contains_each_example(story: Story) -> None:
    paths = story.ok("GET", "/v2/openapi.json")["paths"]
    for route, bodies in examples(story.clock.now().date()).items():
        method, path = re.sub(r"<(\w+)>", r"{\1}", route).split(" ")
        body = paths[path][method.lower()]["requestBody"]
        shown = body["content"]["application/json"]["examples"].values()
        assert {item["summary"]: item["value"] for item in shown} == bodies
