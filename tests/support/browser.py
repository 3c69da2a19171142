"""A browser with the console: keeps the cookie, and sends what the console's scripts send."""

from typing import Any

from werkzeug.test import TestResponse

from tests.support.service import Story

SESSION = "/console/session"
CSRF = "X-Climate-Csrf"


class Browser:
    """One browser at a site; the site is that of the test client unless ``base_url`` is given."""

    def __init__(self, story: Story, base_url: str = "http://localhost", address: str = "") -> None:
        self._story, self.base_url = story, base_url
        self.http = story.http.application.test_client()
        self._remote = {"REMOTE_ADDR": address} if address else {}
        self.csrf: str | None = None

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> TestResponse:
        """Send a request of a page of the site; ``headers`` replace or add some."""
        own = {"Origin": self.base_url, "Sec-Fetch-Site": "same-origin"}
        own = own if method != "GET" else {"Sec-Fetch-Site": "same-origin"}
        secret = {CSRF: self.csrf} if self.csrf and method != "GET" else {}
        return self.send_exactly(method, path, body, {**own, **secret, **(headers or {})})

    def send_exactly(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> TestResponse:
        """Send a request with exactly these headers, and the cookie."""
        return self.http.open(
            path,
            method=method,
            json=body,
            headers=headers,
            base_url=self.base_url,
            environ_base=self._remote,
        )

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request of a page that must succeed; return the JSON of the answer."""
        response = self.send(method, path, body)
        assert response.status_code < 400, response.get_data(as_text=True)
        if path == SESSION and method != "DELETE":
            self.csrf = response.get_json()["csrf"]
        return response.get_json()

    def sign_in(self, **body: Any) -> dict[str, Any]:
        """Sign in, by default as alice in the project lab; return the session."""
        answer: dict[str, Any] = self.ok(
            "POST", SESSION, body or {"user": "alice", "project": "lab"}
        )
        return answer

    def session(self) -> dict[str, Any]:
        """Return the session as the server sees it."""
        answer: dict[str, Any] = self.ok("GET", SESSION)
        return answer

    def is_signed_in(self) -> bool:
        return bool(self.send("GET", SESSION).get_json()["signed_in"])

    @property
    def cookie(self) -> str:
        """The value of the session cookie."""
        found = self.http.get_cookie("climate") or self.http.get_cookie("__Host-climate")
        assert found is not None
        return found.value

    @cookie.setter
    def cookie(self, value: str) -> None:
        self.http.set_cookie("climate", value)
