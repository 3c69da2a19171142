"""Lists of v1 are complete, as Blazar's clients know no pages. ``limit`` cuts them into pages."""

from typing import Any

from tests.support.service import Story


def pages(story: Story, key: str, path: str, limit: int, **call: Any) -> list[list[str]]:
    """Return the ids on each page, up to the first page that is not full."""
    found: list[list[str]] = []
    marker = ""
    while not found or len(found[-1]) == limit:
        listed = story.ok("GET", f"{path}?limit={limit}{marker}", **call)[key]
        found.append([item["id"] for item in listed])
        marker = f"&marker={found[-1][-1]}" if found[-1] else ""
    return found


def test_pages_of_leases_and_hosts_together_are_the_complete_list(story_everywhere: Story) -> None:
    story = story_everywhere
    for start in (90, 60, 60, 60, 120):  # three have the same start
        story.reserve(start, 150, reservations=[])
        body = story.lease_body(start, 150, reservations=[])
        story.ok("POST", "/v1/leases", body, token="alice:lab")
    for key, path, token, count in [
        ("leases", "/v1/leases", None, 10),
        ("leases", "/v1/leases", "alice:lab", 5),
        ("hosts", "/v1/os-hosts", None, 4),
    ]:
        whole = [item["id"] for item in story.ok("GET", path, token=token)[key]]
        assert len(whole) == count
        for limit in (1, 2, 3, 1000):
            listed = pages(story, key, path, limit, token=token)
            assert [id_ for page in listed for id_ in page] == whole
            assert max(map(len, listed)) == min(limit, count)


def test_a_page_that_does_not_exist_is_a_bad_request(story: Story) -> None:
    foreign = story.reserve()["id"]
    for query in ("limit=0", "limit=1001", "limit=x", "limit="):
        for path in ("/v1/leases", "/v1/os-hosts"):
            assert "limit" in story.refused(400, "GET", f"{path}?{query}")
    for marker in ("none", foreign, "%00", "", "%ED%A0%80"):
        story.refused(400, "GET", f"/v1/leases?limit=1&marker={marker}", token="alice:lab")
    for marker in ("none", "-1", str(2**64), "%00", ""):
        story.refused(400, "GET", f"/v1/os-hosts?limit=1&marker={marker}")
    assert story.ok("GET", "/v1/leases?sort_key=name&all=1")["leases"], "others are ignored"
