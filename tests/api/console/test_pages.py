"""The page of the web console, its files, and who is redirected to it."""

import gzip
import re
from pathlib import Path

from climate.api import console
from climate.core.notifications import event_type
from tests.support.service import Story

PAGE = "/console/"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
# Bytes of all files together, each minified and compressed as the browser receives it.
_MOST_BYTES = 150_000
_STATIC = Path(console.__file__).parent / "static"
_LOADED = re.compile(r'(?:src|href)="(/console/static/[^"]+)"')


def _loaded(story: Story) -> list[str]:
    return _LOADED.findall(story.call("GET", PAGE).get_data(as_text=True))


def test_browsers_are_redirected_and_other_clients_get_the_versions(story: Story) -> None:
    response = story.http.get("/", headers=BROWSER)
    assert (response.status_code, response.headers["Location"]) == (302, PAGE)
    for accept in ("application/json", "*/*", "", "application/json, text/html;q=0.5"):
        response = story.http.get("/", headers={"Accept": accept})
        assert (response.status_code, response.mimetype) == (300, "application/json"), accept


def test_each_address_of_the_console_returns_the_page_without_a_token(story: Story) -> None:
    for path in ("/console", PAGE, "/console/leases", "/console/leases/some-id"):
        response = story.call("GET", path, token="not a token")
        assert (response.status_code, response.mimetype) == (200, "text/html"), path
        policy = response.headers["Content-Security-Policy"]
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        assert response.headers["Referrer-Policy"] == "no-referrer"


def test_the_page_loads_files_that_the_browser_keeps(story: Story) -> None:
    loaded = _loaded(story)
    assert len(loaded) >= 5
    for path in loaded:
        response = story.http.get(path, headers={"Accept-Encoding": "gzip"})
        assert response.status_code == 200, path
        assert "immutable" in response.headers["Cache-Control"]
        assert gzip.decompress(response.data)


def test_files_of_another_release_are_asked_for_again(story: Story) -> None:
    path = re.sub(r"/static/\w+/", "/static/older/", _loaded(story)[0])
    response = story.http.get(path)
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "no-cache")
    unchanged = story.http.get(path, headers={"If-None-Match": response.headers["ETag"]})
    assert unchanged.status_code == 304


def test_the_page_knows_the_path_where_the_service_is_mounted(story: Story) -> None:
    root = "/booking'\"<x>"
    text = story.http.get(PAGE, environ_overrides={"SCRIPT_NAME": root}).get_data(as_text=True)
    assert 'content="/booking&#x27;&quot;&lt;x&gt;"' in text
    assert "<x>" not in text


def test_no_other_file_can_be_read(story: Story) -> None:
    version = _loaded(story)[0].split("/")[3]
    for name in ("index.html", "..%2Fpages.py", "js/..", "js/pages/none.js", "js/"):
        assert story.call("GET", f"/console/static/{version}/{name}").status_code == 404, name


def test_all_files_together_stay_small(story: Story) -> None:
    version = _loaded(story)[0].split("/")[3]
    names = [str(path.relative_to(_STATIC)) for path in _STATIC.rglob("*") if path.is_file()]
    page = gzip.compress((_STATIC / "index.html").read_bytes())
    sizes = [len(page)]
    for name in names:
        if name != "index.html":
            path = f"/console/static/{version}/{name}"
            answer = story.http.get(path, headers={"Accept-Encoding": "gzip"})
            assert answer.status_code == 200, name
            sizes.append(len(answer.data))
    assert len(sizes) > 20
    assert sum(sizes) < _MOST_BYTES


def test_no_template_literal_is_inside_another() -> None:
    # rjsmin removes spaces from the text of nested ones.
    nested = re.compile(r"`[^`]*\$\{[^}`]*`")
    found = [p.name for p in _STATIC.rglob("*.js") if nested.search(p.read_text(encoding="utf-8"))]
    assert found == []


def test_scripts_turn_no_text_into_markup() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|style="
    )
    found = {
        path.name: match.group()
        for path in _STATIC.rglob("*.js")
        if (match := forbidden.search(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_folders_of_scripts_have_at_most_twelve_entries() -> None:
    crowded = {
        str(folder.relative_to(_STATIC)): len(list(folder.iterdir()))
        for folder in [_STATIC / "js", *(p for p in (_STATIC / "js").rglob("*") if p.is_dir())]
        if len(list(folder.iterdir())) > 12
    }
    assert crowded == {}


def test_the_console_names_only_types_that_notifications_have() -> None:
    scripts = "".join(path.read_text() for path in _STATIC.glob("js/**/*.js"))
    named = set(re.findall(r'"((?:lease|subscription|audit|node)\.[a-z_.]+[a-z])"', scripts))
    assert "lease.create" in named
    assert {name: event_type.why_unknown(name) for name in named} == dict.fromkeys(named)
