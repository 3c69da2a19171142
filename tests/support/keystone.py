"""A fake Keystone on the loopback, with the tokens that a test issues.

It stands in where a real one could not be made to fail, or to say what a test needs.
"""

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from werkzeug import Request, Response

from tests.support.process import free_port
from tests.support.wsgi import listening

EXPIRY = {"issued_at": "2026-01-01T00:00:00.000000Z", "expires_at": "2999-01-01T00:00:00.000000Z"}
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
        self.is_broken = False
        self.asked: list[str] = []
        # Passwords by user; the projects in which each user is a member; application credentials:
        # the secret, the user and the project by id.
        self.passwords: dict[str, str] = {}
        self.memberships: dict[str, list[str]] = {}
        self.credentials: dict[str, tuple[str, str, str]] = {}
        self.token_size = 0
        # The status with which it rejects a sign-in.
        self.rejection = 401
        # The token without a project from which each token was made.
        self.roots: dict[str, str] = {}
        # Waits before it answers a sign-in, if set.
        self.held: threading.Event | None = None
        self.endpoints = {"identity": self.url}

    def issue(self, text: str, user: str = "u", roles: str = "", **scope: Any) -> str:
        """Make a token valid; without ``scope`` it is unscoped."""
        domain = {"id": "default", "name": "Default"}
        token = {
            "methods": ["password"],
            "user": {"id": user, "name": user, "domain": domain},
            "roles": [{"id": role, "name": role} for role in roles.split(",") if role],
            "catalog": self._catalog(),
            **EXPIRY,
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
        with listening(self._answer, self.port):
            yield

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
        if self.is_broken:
            return _json({}, 500)
        if request.path.rstrip("/") == "/v3":
            links = [{"rel": "self", "href": self.url}]
            return _json({"version": {"id": "v3.14", "status": "stable", "links": links}}, 200)
        if request.path == "/v3/auth/projects":
            return self._projects(request.headers["X-Auth-Token"])
        if request.path != "/v3/auth/tokens":
            return _json({}, 404)
        if request.method == "POST":
            return self._authenticate(request.get_json()["auth"])
        return self._token(request.method, request.headers["X-Subject-Token"])

    def _token(self, method: str, text: str) -> Response:
        if method == "DELETE":
            for child in [child for child, root in self.roots.items() if root == text]:
                self.tokens.pop(child, None)
            return _json({}, 204 if self.tokens.pop(text, None) else 404)
        if len(text) > _LONGEST_HEADER:
            return _json({}, 400)
        found = self.tokens.get(text)
        return _json({"token": found}, 200, text) if found else _json({}, 404)

    def _authenticate(self, auth: dict[str, Any]) -> Response:
        identity = auth["identity"]
        method = identity[identity["methods"][0]]
        if "user" in method and method["user"].get("name") == "climate":
            if not self.knows_the_service:
                return _json({"error": {"message": "who?"}}, 401)
            self.issue(SERVICE_TOKEN, "climate", "service", project="service")
            return _json({"token": self.tokens[SERVICE_TOKEN]}, 201, SERVICE_TOKEN)
        if self.held is not None:
            self.held.wait()
        user, project = self._user(method), auth.get("scope", {})
        project_id = project["project"]["id"] if "project" in project else None
        if "secret" in method and user is not None:
            project_id = self.credentials[method["id"]][2]
        if user is None or (project_id and project_id not in self.memberships[user]):
            return _json({"error": {"message": "wrong"}}, self.rejection)
        return self._sign_in(user, project_id, method.get("id"))

    def _user(self, method: dict[str, Any]) -> str | None:
        if "secret" in method:
            secret, user, _ = self.credentials.get(method["id"], ("", None, ""))
            return user if method["secret"] == secret else None
        if "user" in method:
            given = method["user"]
            is_right = self.passwords.get(given["name"]) == given["password"]
            return str(given["name"]) if is_right else None
        token = self.tokens.get(method["id"])
        # As with allow_rescope_scoped_token = false, the default.
        return None if token is None or "project" in token else str(token["user"]["id"])

    def _sign_in(self, user: str, project_id: str | None, root: str | None) -> Response:
        text = f"token-of-{user}-{uuid.uuid4().hex}".ljust(self.token_size, "x")
        scope = {"project": project_id} if project_id else {}
        if root is not None:
            self.roots[text] = root
        self.issue(text, user, "member,reader" if project_id else "", **scope)
        return _json({"token": self.tokens[text]}, 201, text)

    def _projects(self, text: str) -> Response:
        if text not in self.tokens:
            return _json({}, 401)
        user = self.tokens[text]["user"]["id"]
        projects = [
            {"id": id_, "name": id_.title(), "domain_id": "default"}
            for id_ in self.memberships[user]
        ]
        return _json({"projects": projects}, 200)


def _json(body: dict[str, Any], status: int, token: str | None = None) -> Response:
    response = Response(status=status, mimetype="application/json")
    response.set_data(json.dumps(body))
    if token is not None:
        response.headers["X-Subject-Token"] = token
    return response
