"""Random requests: valid ones with damaged bodies, and noise.

Routes come from the application's own tables. Ids of existing objects are written as ``@name@``
and are filled in when a request is sent, so that an example is the same in every run.
"""

import base64
import copy
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from hypothesis import strategies as st
from werkzeug.datastructures import Headers
from werkzeug.test import create_environ, run_wsgi_app

from climate.api.app import OPEN, ROUTES
from tests.support.service import host_reservation, hosts

Wsgi = Callable[..., Any]


@dataclass(frozen=True, repr=False)
class Request:
    """A request as a WSGI server passes it on: the path still quoted, the body as bytes."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def __repr__(self) -> str:
        parts = (self.method, self.path, self.query, dict(self.headers), self.body)
        return f"Request({', '.join(repr(part)[:1_000] for part in parts)})"

    def filled_in(self, ids: Mapping[str, str]) -> "Request":
        def fill(text: str) -> str:
            return re.sub(r"@([\w ]+)@", lambda found: ids.get(found[1], found[0]), text)

        body = fill(self.body.decode("latin-1")).encode("latin-1")
        return Request(self.method, fill(self.path), fill(self.query), self.headers, body)


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int
    headers: Headers
    body: bytes


_REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check(request: Request, answer: Answer) -> None:
    """Check what holds for every answer."""
    assert answer.status < 500, answer
    assert _REQUEST_ID.fullmatch(answer.headers["X-Openstack-Request-Id"]), answer
    if answer.status < 400 or request.method == "HEAD":
        return
    if answer.status == 404 and answer.headers["Content-Type"].startswith("text/html"):
        assert request.path.startswith("/email/"), answer  # a page for people
        return
    body = json.loads(answer.body)
    assert isinstance(body, dict), answer
    if request.path.startswith(("/v2", "/console")):
        assert answer.headers["Content-Type"] == "application/problem+json", answer
        assert body["status"] == answer.status, answer
        assert body["code"], answer
    else:
        assert answer.headers["Content-Type"] == "application/json", answer
        assert body["error_message"], answer


def send(app: Wsgi, request: Request) -> Answer:
    """Call the application directly: a client would correct the request."""
    environ = create_environ(method="GET", path="/")
    environ |= {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
        "QUERY_STRING": request.query,
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": io.StringIO(),
    }
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{key}"] = value
    chunks, status, headers = run_wsgi_app(app, environ)
    # A stream has no end: its first chunk is enough.
    streams = (headers.get("Content-Type") or "").startswith("text/event-stream")
    try:
        body = b"".join(islice(chunks, 1) if streams else chunks)
    finally:
        if hasattr(chunks, "close"):
            chunks.close()
    return Answer(int(status.split()[0]), headers, body)


# Valid bodies by route; a route without any gets those of the others.
EXPRESSION = json.dumps(["and", [">=", "$vcpus", "16"], ["not", ["in", "$gpu", "a", "b"]]])
VALID: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("POST", "/v1/leases"): [
        {
            "name": "random",
            "start_date": "2030-01-16 12:00",
            "end_date": "2030-01-16 14:00",
            "before_end_date": "2030-01-16 13:00",
            "reservations": [
                host_reservation("1", 2, resource_properties=EXPRESSION, before_end="snapshot"),
                host_reservation(hypervisor_properties=[">=", "$id", "1"]),
            ],
            "events": [
                {"event_type": "before_start_lease", "event_date": "2030-01-16 11:50"},
                {"event_type": "backup", "time": "2030-01-16 12:30"},
            ],
        },
        {
            "name": "now",
            "start_date": "now",
            "end_date": "9999-12-31 23:59",
            "before_end_date": None,
            "reservations": [host_reservation()],
            "events": [],
        },
    ],
    ("PUT", "/v1/leases/<lease_id>"): [
        {"name": "renamed"},
        {"end_date": "2030-01-15 18:00", "before_end_date": "2030-01-15 17:00"},
        {"reservations": [{"id": "@pending reservation@", "min": 1, "max": 3}]},
        {
            "start_date": "2030-01-15 14:00",
            "end_date": "2030-01-15 15:00",
            "reservations": [{"id": "@pending reservation@", "resource_properties": EXPRESSION}],
        },
        {"reservations": [{"id": "@active reservation@", "resource_type": None, "max": "2"}]},
    ],
    ("POST", "/v1/os-hosts"): [
        {"name": "sim-5", "gpu": "a100", "nics": 2, "ssd": True, "load": 0.5},
        {"id": "6", "rack": "row 3, rack 9"},
    ],
    ("PUT", "/v1/os-hosts/<host_id>"): [{"gpu": "h100"}, {"nics": 4, "ssd": False}],
    ("PATCH", "/v1/os-hosts/properties/<name>"): [{"private": True}, {"private": False}],
    ("POST", "/v2/leases"): [
        {
            "name": "random",
            "start": "2030-01-16T12:00:00Z",
            "end": "2030-01-16T15:00:30+01:00",
            "before_end": "2030-01-16T13:00:00Z",
            "reservations": [
                hosts("1", 2, resource_properties=EXPRESSION, before_end="snapshot"),
                hosts(hypervisor_properties=[">=", "$id", "1"]),
            ],
            "events": [
                {"type": "before_start_lease", "at": "2030-01-16T11:50:00Z"},
                {"type": "backup", "at": "2030-01-16 12:30:00Z"},
            ],
        },
        {
            "name": "now",
            "start": "9999-12-31T00:00:00Z",
            "end": "9999-12-31T23:59:59Z",
            "reservations": [hosts()],
        },
    ],
    ("PATCH", "/v2/leases/<lease_id>"): [
        {"name": "renamed"},
        {"end": "2030-01-15T18:00:00Z", "before_end": "2030-01-15T17:00:00Z"},
        {"reservations": [{"id": "@pending reservation@", "params": {"min": 1, "max": 3}}]},
        {
            "start": "2030-01-15T14:00:00Z",
            "end": "2030-01-15T15:00:00Z",
            "reservations": [
                {"id": "@pending reservation@", "params": {"resource_properties": EXPRESSION}}
            ],
        },
        {"reservations": [{"id": "@active reservation@", "params": {"max": "2"}}]},
    ],
}
# Existing objects by the name of the path parameter.
IDS: dict[str, list[str]] = {
    "lease_id": ["@pending@", "@active@", "@over@", "@failed@"],
    "host_id": ["@host@", "@free host@"],
    "resource_id": ["@host@", "@free host@"],
    "name": ["gpu"],
}
SPECIAL_TEXTS = [
    *(text for some in IDS.values() for text in some),
    *(
        "0",
        "-1",
        "1.0",
        str(2**63 - 1),
        str(2**63),
        "9" * 99,
        "GPU",
        "vcpus",
        "$vcpus",
        "$gpu",
        "$",
    ),
    *("", " ", "null", "None", "now", "NOW", "==", "!=", "<", "in", "not", "and", "or", "sim-1"),
    *("physical:host", "virtual:instance", "before_start_lease", "end_lease", "before_end_lease"),
    *("\x00", "a\x00b", "\ud800", "\udfff\ud800", "\uffff", "\U0001f600", "\u202e", "٣", "'", '"'),
    *("2030-01-15T12:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-00:01"),
    *("%", "%s", "{0}", "../..", "2030-01-15 12:00", "0001-01-01 00:00", "9999-12-31 23:59"),
    *("1e308", "1e309", "-0", "5e-324", "nan", "inf", "1_000", '["==", "$gpu", "\\u0000"]'),
    *('["==", "$gpu", "\\ud800"]', '["==", "$\\u0000", "1"]', "5", "true", "{}", '["and"]'),
]
LONG = [("x", 64), ("x", 65), ("x", 81), ("x", 256), ("x", 70_000), ("é", 10_001), ("9", 400)]
NUMBERS = [0, 1, -1, 2, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**64), 10**400]
texts = st.one_of(
    st.sampled_from(SPECIAL_TEXTS),
    st.text(st.characters(), max_size=12),
    st.sampled_from([*LONG, ("[", 100)]).map(lambda long: long[0] * long[1]),
)
numbers = st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats())
scalars = st.one_of(st.none() | st.booleans(), numbers, texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=8,
)
# JSON in a JSON text may contain characters that the text itself does not show.
json_values = st.one_of(values, values.map(json.dumps))
_names = st.sampled_from(["$vcpus", "$gpu", "$id", "$hypervisor_hostname", "$unknown"])
_trees = st.recursive(
    st.tuples(st.sampled_from(["==", "=", "!=", "<", ">=", "in"]), _names, scalars).map(list),
    lambda inner: (
        st.tuples(st.sampled_from(["and", "or", "not", "xor"]), inner, inner).map(list)
        | inner.map(lambda tree: ["not", tree])
        | st.lists(inner, max_size=3)
    ),
    max_leaves=6,
)
_keys = st.sampled_from(
    ["capabilities:vcpus", "gpu", "trait:HW_CPU_X86_AVX2", "resources:VCPU", "hw:x", "trait:A"]
)
_operations = st.sampled_from(
    [">= 1", "<in> s", "<all-in> a b", "<or> a <or> b", "s< x", "required"]
)
_specs = st.dictionaries(_keys | texts, _operations | scalars, max_size=3)
expressions = st.one_of(_trees, _trees.map(json.dumps), _specs, _specs.map(json.dumps), json_values)
_EXPRESSIONS = ("hypervisor_properties", "resource_properties")

NOISE = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"1" * 5_000,
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"name": ' + b"[" * 70 + b"]" * 70 + b"}",
    b'{"name": 1e999, "end_date": -1e999}',
    b'{"name": "\xff\xfe"}',
    b'{"name": "a", "name": "b"}',
    b"\xef\xbb\xbf{}",
    '{"name": "x"}'.encode("utf-16"),
    '{"name": "x"}'.encode("utf-32"),
    b'{"name": "' + b"x" * 1024 * 1024 + b'"}',
    b"{" + b",".join(b'"%d":1' % n for n in range(20_000)) + b"}",
]


def _positions(value: Any) -> list[tuple[Any, Any]]:
    """Return all pairs (container, key) of a JSON value."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [p for key in keys for p in _positions(value[key])]


@st.composite
def damaged(draw: st.DrawFn, valid: list[dict[str, Any]]) -> Any:
    """A valid body with up to three damages."""
    body: Any = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(0, 3))):
        positions = _positions(body)
        damage = draw(st.sampled_from(["replace", "replace", "drop", "add", "repeat", "wrap"]))
        if damage == "add" or not positions:
            body[draw(texts)] = draw(json_values)
            continue
        container, key = positions[draw(st.integers(0, len(positions) - 1))]
        if key in _EXPRESSIONS and draw(st.booleans()):
            container[key] = draw(expressions)
        elif damage == "drop":
            del container[key]
        elif damage == "repeat" and isinstance(container, list):
            container.extend([container[key]] * draw(st.sampled_from([1, 99, 101])))
        else:
            container[key] = [container[key]] if damage == "wrap" else draw(json_values)
    return body


@st.composite
def bodies(draw: st.DrawFn, route: tuple[str, str]) -> bytes:
    """A damaged body for the route, other JSON, or noise."""
    kind = draw(st.sampled_from(["damaged"] * 6 + ["other", "json", "noise", "bytes"]))
    if kind == "noise":
        return draw(st.sampled_from(NOISE))
    if kind == "bytes":
        return draw(st.binary(max_size=40))
    every = [body for found in VALID.values() for body in found]
    value = (
        draw(values)
        if kind == "json"
        else draw(damaged(every if kind == "other" else VALID.get(route, every)))
    )
    as_ascii = draw(st.booleans())
    return json.dumps(value, ensure_ascii=as_ascii).encode("utf-8", "surrogatepass")


@st.composite
def paths(draw: st.DrawFn, template: str) -> str:
    """The path of a route with random parameters, quoted."""
    if draw(st.integers(0, 19)) == 0:
        template += draw(st.sampled_from(["/", "//", ".json", "/..", "%2F", "%00", "?", "/x"]))

    def chosen(parameter: re.Match[str]) -> str:
        name = parameter[1].rpartition(":")[2]
        if name in IDS and draw(st.integers(0, 3)):
            return quoted(draw(st.sampled_from(IDS[name])))
        return draw(texts.map(quoted) | st.sampled_from(["%ff%fe", "%", "%zz", "%2e%2e", "%0a"]))

    return re.sub(r"<([^>]+)>", chosen, template)


def quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="@ ")


# Nearly valid values of a parameter.
_orders = ["start", "-start", "end", "-created", "name", "-name", "id", "-id"]
_sort_keys = st.tuples(st.sampled_from(_orders) | scalars, scalars, scalars)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "limit": st.integers(-1, 1001).map(str),
    "after": st.integers().map(str),
    "sort": st.sampled_from(_orders),
    "status": st.sampled_from(["ACTIVE", "PENDING", "ERROR", "active"]),
    "all_projects": st.sampled_from(["true", "false", "1"]),
    "properties": expressions.map(json.dumps),
    "marker": (_sort_keys | values).map(
        lambda key: base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")
    ),
}


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query string: known names with strange values, unknown names, or noise."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(["&", "=", "a&&=b", "%", "%zz=%ff", "a=" * 2_000, "after=%00"]))
    names = ["after", "limit", "lease_id", "reservation_id", "detail", "all"]
    names += ["marker", "sort", "status", "starts_before", "ends_after", "all_projects", "name"]
    names += ["resource_type", "properties", "properties", "marker"]
    known = st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), VALUES.get(name, texts) | texts)
    )
    pairs = known | st.tuples(texts, texts | st.integers().map(str))
    found = draw(st.lists(pairs, max_size=3))
    return "&".join(f"{quoted(name)}={quoted(value)}" for name, value in found)


# A server accepts printable ASCII and all bytes above it in a header.
header_values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=20).map(
    lambda text: text.replace("\x7f", "")
)
TOKENS = ["notused", "alice:lab", "alice:lab:reader", "bob:other:member", "root:any:admin", "x"]
TOKENS += ["", ":", "a:", ":b", "a:b:", "a:b:,,", "a:" + "p" * 256, "ü:ß:admin", "a:b:admin:c"]
headers = st.fixed_dictionaries(
    {},
    optional={
        "X-Auth-Token": st.sampled_from(TOKENS) | header_values,
        "OpenStack-API-Version": st.sampled_from(
            ["reservation 1.0", "reservation latest", "reservation 2.0", "reservation", "compute 2"]
        )
        | header_values.map(lambda text: f"reservation {text}"),
        "Content-Type": st.sampled_from(
            ["application/json", "text/plain", "multipart/form-data; boundary=x", "x; charset=no"]
        )
        | header_values,
        "Content-Length": st.sampled_from(["", "0", "-1", "abc", "1e9", "9" * 30]),
        "If-Match": st.sampled_from(["*", '""', 'W/"x"', '"', ","]) | header_values,
        "If-None-Match": st.sampled_from(["*", '""', 'W/"x"', '"', ","]) | header_values,
        "Idempotency-Key": st.sampled_from(["", "k", "k" * 255, "k" * 256]) | header_values,
        "If-Modified-Since": header_values,
        "Range": st.sampled_from(["bytes=0-1", "bytes=9-", "x"]) | header_values,
        "Accept": st.sampled_from(["*/*", "text/html", "application/xml;q=x"]) | header_values,
        "Host": st.sampled_from(["", "[", "a b", "x:99999", "host:abc"]) | header_values,
        "X-OpenStack-Request-ID": st.sampled_from(["req-1", "x" * 9_000]) | header_values,
        "X-Forwarded-For": header_values,
        "Transfer-Encoding": st.just("chunked"),
    },
)
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW", "get", "ü"]


# Routes with a body have more to get wrong.
_EVERY = [(method, path) for method, path, *_ in (*OPEN, *ROUTES)]
_WEIGHTED = [route for route in _EVERY for _ in range(1 if route[0] in {"GET", "DELETE"} else 6)]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Any request to any route, most of them by its own method and nearly valid."""
    method, template = route = draw(st.sampled_from(_WEIGHTED))
    plain = draw(st.integers(0, 4)) > 0
    return Request(
        method=method if plain or draw(st.booleans()) else draw(st.sampled_from(METHODS)),
        path=draw(paths(template)),
        query="" if plain and draw(st.booleans()) else draw(queries()),
        headers={} if plain else draw(headers),
        body=b"" if method in {"GET", "DELETE"} and plain else draw(bodies(route)),
    )
