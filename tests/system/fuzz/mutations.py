"""Mutations of a valid request: harmless ones, which pass validation, and hostile ones."""

import copy
import json
import random
import re
from collections.abc import Callable
from typing import Any

from tests.api.random_requests import LONG, NOISE, NUMBERS, SPECIAL_TEXTS, TOKENS, Request, quoted
from tests.system.fuzz.known import KINDS, Known
from tests.system.fuzz.valid import Draft

# A URL is replaced only by these: climate must not send a webhook to any other machine.
_URLS = ["", "x", "http://", "https://127.0.0.1:0/", "http://[::1]:9/", "http://127.0.0.1:1/\u00e9"]
_URLS += [
    "ftp://127.0.0.1/",
    "http://169.254.169.254/",
    "http://u:p@127.0.0.1:9/",
    "http://[",
    "//",
]
_TEXTS = [text for text in SPECIAL_TEXTS if not text.startswith("@")]
_TEXTS += [text * count for text, count in (*LONG, ("ab ", 100_000), ("\U0001f600", 41))]
_TEXTS += ["e\u0301\u202e\u200b", "\ufeff", "<script>", "\u0000", "\ud83d", "${jndi}", "a\r\nb: c"]
_DATES = [
    "2024-02-30 12:00",
    "2030-01-15T12:00:00+24:00",
    "2030-01-15T12:00:60Z",
    "1969-12-31 23:59",
]
_DATES += [
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "2030-01-15T12:00Z",
    "\u0662030-01-15",
    "now",
]
_YAML = [
    "\nx: " + "- " * 500 + "y",
    "\nx: " + "{a: " * 2_000,
    "\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "\nx: !!python/object/apply:os.system [id]",
    "\nx: !!binary x\ny: !!timestamp 2001-99-99\n",
    "\nx: 1:59:59:59\ny: 0o777\nz: .inf",
    "\n? [a, b]\n: c",
    "\n<<: {resources: null}",
    "\n--- {}\n...",
    "\nresources: []\n",
    "\n\t- x",
    "\nx: \x00",
]
# The HTTP server itself rejects longer bodies.
_LONGEST = 1_000_000
Mutation = Callable[[random.Random, Draft, Known], None]


def _positions(value: Any) -> list[tuple[Any, Any]]:
    """Return the pairs (container, key) of a JSON value, at all depths."""
    if not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    return [(value, key) for key in keys] + [p for key in keys for p in _positions(value[key])]


def _position(rng: random.Random, request: Draft) -> tuple[Any, Any]:
    return rng.choice(_positions(request.body))


def _value(rng: random.Random) -> Any:
    """Return a hostile value of any type."""
    depth = rng.choice([1, 63, 64, 65, 300])
    values: list[Any] = [None, True, False, rng.choice(NUMBERS), rng.choice(NUMBERS)]
    values += [rng.choice(_TEXTS), rng.choice(_TEXTS), rng.choice(_DATES), rng.random() * 1e9]
    values += [[], {}, [None], {"": ""}, {rng.choice(_TEXTS)[:99]: rng.choice(_TEXTS)}]
    values += [float("nan"), float("inf"), _nested(depth), ["x"] * rng.choice([2, 101, 5_000])]
    return rng.choice(values)


def _nested(depth: int) -> Any:
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def _replace(rng: random.Random, request: Draft, _: Known) -> None:
    container, key = _position(rng, request)
    container[key] = rng.choice(_URLS) if key == "url" else _value(rng)


def _drop(rng: random.Random, request: Draft, _: Known) -> None:
    container, key = _position(rng, request)
    del container[key]


def _add(rng: random.Random, request: Draft, _: Known) -> None:
    container, _key = _position(rng, request)
    if isinstance(container, dict):
        container[rng.choice(["name", "id", "project_id", "params", *_TEXTS])] = _value(rng)


def _repeat(rng: random.Random, request: Draft, _: Known) -> None:
    """Repeat an item of a list, such as a reservation."""
    values = [container[key] for container, key in _positions(request.body)]
    if lists := [value for value in values if isinstance(value, list) and value]:
        chosen = rng.choice(lists)
        chosen += [copy.deepcopy(chosen[0]) for _ in range(rng.choice([1, 1, 2, 20, 101]))]


def _wrap(rng: random.Random, request: Draft, _: Known) -> None:
    container, key = _position(rng, request)
    value = container[key]
    container[key] = rng.choice([[value], {"x": value}, str(value)])


def _nudge(rng: random.Random, request: Draft, _: Known) -> None:
    """Change a number or the digits of a text a little: most results are valid."""
    container, key = _position(rng, request)
    value = container[key]
    if isinstance(value, bool) or key == "url":
        return
    if isinstance(value, int):
        container[key] = rng.choice([value + 1, value - 1, value * 2, str(value), -value])
    elif isinstance(value, str) and value:
        place = rng.randrange(len(value))
        container[key] = value[:place] + rng.choice("0129 zé\u2028") + value[place + 1 :]


def _swap(rng: random.Random, request: Draft, known: Known) -> None:
    """Put the id of an object, of any kind, into the body or the path."""
    id_ = known.pick(rng, rng.choice(list(KINDS.values())))
    container, key = _position(rng, request)
    if key != "url" and rng.random() < 0.5:
        container[key] = id_
    else:
        request.path = re.sub(r"[^/]+$", id_, request.path)


def _template(rng: random.Random, request: Draft, _: Known) -> None:
    """Append hostile YAML to a template, or put it into the environment or a file."""
    for container, key in _positions(request.body):
        if key == "template" and isinstance(container, dict):
            text = container[key] if isinstance(container[key], str) else "resources: {}"
            hostile = text + rng.choice(_YAML)
            where = rng.choice(["template", "template", "environment", "files", "parameters"])
            values = {"files": {"child.yaml": hostile}, "parameters": {"kind": _value(rng)}}
            container[where] = values.get(where, hostile)
            return
    _nudge(rng, request, _)


def _identity(rng: random.Random, request: Draft, _: Known) -> None:
    request.headers["X-Auth-Token"] = rng.choice(TOKENS)


def _condition(rng: random.Random, request: Draft, known: Known) -> None:
    tag = rng.choice(
        [known.pick(rng, "etag"), "*", '""', 'W/"x"', '"', ", ,", "x" * 9_000, "\u00ff"]
    )
    request.headers[rng.choice(["If-Match", "If-None-Match"])] = tag


def _idempotency(rng: random.Random, request: Draft, _: Known) -> None:
    keys = ["", " ", "k" * 255, "k" * 256, "\u00e9", *(f"key-{rng.randint(1, 40)}",) * 8]
    request.headers["Idempotency-Key"] = rng.choice(keys)


def _header(rng: random.Random, request: Draft, _: Known) -> None:
    values = [
        "",
        "x",
        "\u00ff\u00fe",
        "reservation 1.0",
        "reservation 9.9",
        "text/plain",
        "*/*;q=x",
    ]
    values += [
        "application/json; charset=utf-16",
        "bytes=0-1",
        "req-1",
        "gzip",
        "[",
        "x:99999",
        "-1",
    ]
    names = ["Content-Type", "OpenStack-API-Version", "Accept", "Range", "Last-Event-ID", "Origin"]
    names += ["X-OpenStack-Request-ID", "X-Forwarded-For", "Content-Encoding", "Host", "Cookie"]
    request.headers[rng.choice(names)] = rng.choice(values)


def _query(rng: random.Random, request: Draft, known: Known) -> None:
    names = ["limit", "marker", "sort", "status", "after", "lease_id", "properties", "state", "all"]
    names += ["all_projects", "starts_before", "name", "resource_type", "detail", "reservation_id"]
    texts = [rng.choice(_TEXTS)[:2_000], known.pick(rng, "marker"), known.pick(rng, "lease"), "1"]
    name = rng.choice([*names, *(name for name, _ in request.query if name != "wait")])
    request.query.append((name, rng.choice([*texts, rng.choice(_DATES), "true", "-1", "[]"])))
    if rng.random() < 0.3:
        request.query.append(request.query[0])


def _path(rng: random.Random, request: Draft, _: Known) -> None:
    ends = ["/", "//", "/..", "%2F", "%00", "%ff%fe", "%0a", "%zz", ".json", "/x", "%2e%2e", "?x"]
    if rng.random() < 0.5:
        request.path += rng.choice(ends)
    else:
        text = quoted(rng.choice(_TEXTS)[:300]).replace(" ", "%20")
        request.path = re.sub(r"[^/]+$", lambda _: text, request.path)


def _method(rng: random.Random, request: Draft, _: Known) -> None:
    request.method = rng.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])


_BODY: list[Mutation] = [_replace, _replace, _replace, _drop, _add, _repeat, _wrap, _swap]
_BODY += [_nudge, _nudge, _nudge, _nudge, _template]
_OTHER: list[Mutation] = [_identity, _condition, _idempotency, _header, _query, _path, _method]


def mutated(rng: random.Random, request: Draft, known: Known) -> Request:
    """Apply up to three mutations to a request, and encode it."""
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        of_body = _positions(request.body) and rng.random() < 0.7
        rng.choice(_BODY if of_body else _OTHER)(rng, request, known)
    return encoded(request, _bytes(rng, request.body))


def encoded(request: Draft, body: bytes) -> Request:
    """Return the request as a client sends it."""
    return Request(
        request.method,
        request.path.encode("utf-8", "surrogatepass").decode("latin-1"),
        "&".join(f"{quoted(k)}={quoted(v)}" for k, v in request.query).replace(" ", "%20"),
        request.headers,
        body,
    )


def _bytes(rng: random.Random, value: Any) -> bytes:
    """Return a body as bytes: rarely noise, or with an encoding error or a repeated key."""
    if value is None:
        return b""
    text = json.dumps(value, ensure_ascii=rng.random() < 0.7)
    body = text.encode("utf-8", "surrogatepass")[:_LONGEST]
    draw = rng.random()
    if draw > 0.04:
        return body
    others = [rng.choice([noise for noise in NOISE if len(noise) < 600_000]), body[:-1]]
    others += [body.replace(b"{", b'{"name": "twice", ', 1), b"\xef\xbb\xbf" + body]
    others += [text.encode("utf-16", "surrogatepass"), body.replace(b'"', b'"\x80', 1)]
    return rng.choice(others)
