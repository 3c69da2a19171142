"""A fake Keystone on the loopback, with the tokens that a test issues.

It stands in where a real one could not be made to fail, or to say what a test needs.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from werkzeug import Request, Response
from werkzeug.serving import BaseWSGIServer, make_server

from tests.support.process import free_port

_EXPIRY = {"issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": "2999-01-01T00:00:00.000000Z"}
# Like common web servers.
_LONGEST_HEADER = 8100
SERVICE_TOKEN = "the-token-of-the-service"


class Keystone:
    """Tokens by their text, and the catalog of services."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v3"
        self.tokens: dict[str, dict[str, Any]] = {}
        self.knows_the_service = True
        self.asked: list[str] = []
        self.endpoints = {"identity": self.url}

    def issue(self, text: str, user: str = "u", roles: str = "", **scope: Any) -> str:
        """Make a token valid; without ``scope`` it is unscoped."""
        domain = {"id": "default", "name": "Default"}
        token = {
            "methods": ["password"],
            "user": {"id": user, "name": user, "domain": domain},
            "roles": [{"id": role, "name": role} for role in roles.split(",") if role],
            "catalog": self._catalog(),
            **_EXPIRY,
        }
        if "project" in scope:
            project = scope.pop("project")
            token["project"] = {"id": project, "name": project, "domain": domain}
        self.tokens[text] = {**token, **scope}
        return text

    @property
    def options(self) -> dict[str, object]:
        """The options with which climate's service user authenticates."""
        return {
            "auth_type": "password",
            "auth_url": self.url,
            "username": "climate",
            "password": "s3cret",
            "project_name": "service",
            "user_domain_id": "default",
            "project_domain_id": "default",
        }

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Answer requests, until the end of the block."""
        server = make_server("127.0.0.1", self.port, self._answer, threaded=True)
        thread = threading.Thread(target=_serve, args=(server,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _catalog(self) -> list[dict[str, Any]]:
        return [
            {
                "type": kind,
                "name": kind,
                "endpoints": [
                    {"interface": "internal", "region": "R", "region_id": "R", "url": url}
                ],
            }
            for kind, url in self.endpoints.items()
        ]

    def _answer(self, environ: Any, start_response: Any) -> Any:
        request = Request(environ)
        self.asked.append(f"{request.method} {request.path}")
        return self._response(request)(environ, start_response)

    def _response(self, request: Request) -> Response:
        if request.path.rstrip("/") == "/v3":
            links = [{"rel": "self", "href": self.url}]
            return _json({"version": {"id": "v3.14", "status": "stable", "links": links}}, 200)
        if request.path != "/v3/auth/tokens":
            return _json({}, 404)
        if request.method == "POST":
            if not self.knows_the_service:
                return _json({"error": {"message": "who?"}}, 401)
            self.issue(SERVICE_TOKEN, "climate", "service", project="service")
            return _json({"token": self.tokens[SERVICE_TOKEN]}, 201, SERVICE_TOKEN)
        text = request.headers["X-Subject-Token"]
        if len(text) > _LONGEST_HEADER:
            return _json({}, 400)
        found = self.tokens.get(text)
        return _json({"token": found}, 200, text) if found else _json({}, 404)


def _serve(server: BaseWSGIServer) -> None:
    server.serve_forever(poll_interval=0.01)


def _json(body: dict[str, Any], status: int, token: str | None = None) -> Response:
    response = Response(status=status, mimetype="application/json")
    response.set_data(json.dumps(body))
    if token is not None:
        response.headers["X-Subject-Token"] = token
    return response
