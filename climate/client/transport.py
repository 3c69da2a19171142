"""Sends requests to API v2, reads pages, and turns failures into errors of the client."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from climate.client.errors import (
    ClientError,
    KeystoneUnreachable,
    ServiceUnreachable,
    SignInFailed,
    TemporarilyUnavailable,
    TlsFailed,
    UnexpectedAnswer,
    refusal,
)

if TYPE_CHECKING:  # takes a third of a second, which `climate --help` does not need
    from keystoneauth1.session import Session
    from requests import Response

T = TypeVar("T")
#: The parameters of a query string. None is omitted, a list is repeated, a time is ISO 8601.
Query = Mapping[str, Any]

#: Seconds to wait for an answer. A request that waits for something needs as many more.
TIMEOUT = 60.0
_SHORTEST_TIMEOUT = 0.1
# Seconds to connect, with the TLS handshake. An HTTP server may leave a handshake unanswered.
_CONNECT_TIMEOUT = 10.0
# A request that may be sent twice is sent up to three times, within about a second.
_ATTEMPTS = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.3, 30.0
_LONGEST_EXCERPT = 160
_PLAIN_HTTP = ". If this service speaks plain HTTP, write http:// in its URL"
# Errors after which the same request may succeed.
_PASSING = (ServiceUnreachable, KeystoneUnreachable, TemporarilyUnavailable)
_NOT_JSON = object()


def moment(value: datetime | str) -> str:
    """Return a time as the API reads it; text such as ``now`` stays as it is.

    Raises ValueError for a datetime without a zone, because its meaning would be a guess.
    """
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone: use an aware datetime")
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def convert(value: object, kind: type[T]) -> T:
    """Return the JSON ``value`` as an object. Raises UnexpectedAnswer if it has another form."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UnexpectedAnswer(f"This client cannot read the answer: {error}") from None


def segment(id_: str) -> str:
    """Return an id as a segment of a path."""
    return quote(id_, safe="")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no error; ``body`` is None if it has none."""

    status: int
    body: Any
    headers: Mapping[str, str]

    def member(self, name: str, kind: type[T]) -> T:
        """Return a member of the body. Raises UnexpectedAnswer if it has another form."""
        return convert(convert(self.body, dict[str, Any]).get(name), kind)


class Transport:
    """Requests to API v2 through a keystoneauth session.

    ``find_root`` returns the URL of the service without a version. It may send requests to
    Keystone, so it is called at the first use. Requests end by ``deadline`` (of the monotonic
    clock). ``attempts`` is how often a request is sent that can be repeated. Instances can be
    shared by threads.
    """

    def __init__(
        self,
        session: "Session",
        find_root: Callable[[], str],
        deadline: float | None = None,
        attempts: int = _ATTEMPTS,
    ) -> None:
        self._session = session
        self._find_root = find_root
        self._root: str | None = None
        self._deadline = deadline
        self._attempts = attempts

    def until(self, deadline: float | None) -> "Transport":
        """Return a transport whose requests end by ``deadline`` (of the monotonic clock).

        It sends each request once, because its caller repeats them.
        """
        return Transport(self._session, self._find_root, deadline, attempts=1)

    @property
    def url(self) -> str:
        """The URL of API v2, for example ``https://cloud.example.org/reservation/v2``."""
        if self._root is None:
            self._root = self._signed_in(self._find_root)
        return f"{self._root}/v2"

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        safe: bool = False,
    ) -> Answer:
        """Send a request to ``path``, relative to the URL of API v2, and return the answer.

        If the connection breaks or the service is temporarily unavailable, requests that are safe
        to repeat are repeated: GET, those with an idempotency key, and those with ``safe``. Raises
        Refused, ServiceUnreachable, SignInFailed, UnexpectedAnswer.
        """
        if not safe and method != "GET" and "Idempotency-Key" not in (headers or {}):
            return self._send(method, path, query or {}, body, headers or {})
        return patiently(
            lambda: self._send(method, path, query or {}, body, headers or {}),
            attempts=self._attempts,
        )

    def wait(self, path: str, *, query: Query, seconds: int) -> Answer:
        """Send a GET request that the service answers within ``seconds`` (long polling)."""
        return self._send("GET", path, {**query, "wait": seconds}, None, {}, seconds)

    def get(self, path: str, kind: type[T], query: Query | None = None) -> T:
        """Return the object at ``path``. Raises the errors of ``send``."""
        return convert(self.send("GET", path, query=query).body, kind)

    def pages(self, path: str, key: str, kind: type[T], query: Query | None = None) -> Iterator[T]:
        """Yield the items of a list; request the next page only when it is needed."""
        answer = self.send("GET", path, query=query)
        while True:
            yield from answer.member(key, list[kind])  # type: ignore[valid-type]
            link = answer.member("next", str | None)  # type: ignore[arg-type]
            if not link:
                return
            # The link begins with the mount path of the service, as the path of ``url`` does.
            answer = self.send("GET", f"/{link.partition('/v2/')[2]}")

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: object,
        headers: Mapping[str, str],
        waiting: float = 0.0,
    ) -> Answer:
        url = f"{self.url}{path}"
        self._signed_in(self._session.get_auth_headers)
        response = self._exchange(
            method,
            url,
            params=_encoded(query),
            json=body,
            headers={"Accept": "application/json", **headers},
            timeout=self._timeout(TIMEOUT + waiting),
        )
        return self._read(response)

    def _timeout(self, usual: float) -> float:
        if self._deadline is None:
            return usual
        return min(usual, max(_SHORTEST_TIMEOUT, self._deadline - time.monotonic()))

    def _exchange(self, method: str, url: str, timeout: float, **options: Any) -> "Response":
        from keystoneauth1 import exceptions  # noqa: PLC0415 - see TYPE_CHECKING

        limits = (min(_CONNECT_TIMEOUT, timeout), timeout)
        try:
            return self._session.request(url, method, raise_exc=False, timeout=limits, **options)
        except exceptions.SSLError as error:
            raise self._tls_failed(_reason(error)) from error
        except exceptions.ConnectTimeout as error:
            if any("handshake" in str(cause) for cause in _causes(error)):
                text = f"no answer to the TLS handshake within {limits[0]:.3g} s"
                raise self._tls_failed(text) from error
            reason = f"no answer within {limits[not _is_connecting(error)]:.3g} s"
        except exceptions.ConnectionError as error:
            reason = _reason(error)
        except exceptions.ClientException as error:  # the token has expired, and Keystone fails
            raise KeystoneUnreachable(f"Keystone fails: {_one_line(error)}") from error
        raise ServiceUnreachable(f"climate does not answer at {self.url}: {reason}", self.url)

    def _tls_failed(self, reason: str) -> TlsFailed:
        hint = "" if "CERTIFICATE" in reason else _PLAIN_HTTP
        return TlsFailed(f"climate does not answer at {self.url}: {reason}{hint}", self.url)

    def _signed_in(self, act: Callable[[], T]) -> T:
        """Return the result of ``act``, which may send requests to Keystone."""
        from keystoneauth1 import exceptions  # noqa: PLC0415 - see TYPE_CHECKING

        try:
            return act()
        except exceptions.ConnectionError as error:
            where = getattr(self._session.auth, "auth_url", "its URL")
            raise KeystoneUnreachable(
                f"Keystone does not answer at {where}: {_reason(error)}"
            ) from error
        except exceptions.HttpServerError as error:
            raise KeystoneUnreachable(f"Keystone fails: {_one_line(error)}") from error
        except ClientError:
            raise
        except Exception as error:  # keystoneauth raises plain ones, too, for missing options
            raise SignInFailed(f"Signing in failed: {_one_line(error)}") from error

    def _read(self, response: "Response") -> Answer:
        is_error = response.status_code >= HTTPStatus.BAD_REQUEST
        try:
            body = response.json() if response.content else None
        except ValueError:
            body = None if is_error else _NOT_JSON
        problem = body if is_error and isinstance(body, dict) and "code" in body else None
        if response.status_code == HTTPStatus.UNAUTHORIZED:  # keystonemiddleware sends no problem
            problem = problem or {"detail": f"{self.url} does not accept the token."}
        if response.status_code in TemporarilyUnavailable.statuses:  # a proxy sends no problem
            problem = problem or {"detail": f"{self.url} answers {response.status_code}."}
        if problem is not None:
            request_id = response.headers.get("X-Openstack-Request-Id")
            raise refusal(response.status_code, problem, request_id)
        if is_error or body is _NOT_JSON:
            is_page = "html" in response.headers.get("Content-Type", "")
            raise UnexpectedAnswer(
                f"{response.url} is not climate's API v2: it answers {response.status_code}"
                f" {'with a web page' if is_page else _one_line(response.text)}".rstrip()
            )
        return Answer(response.status_code, body, response.headers)


def patiently(
    act: Callable[[], T],
    *,
    attempts: int | None = None,
    longest_pause: float = _LONGEST_PAUSE,
    on_retry: Callable[[ClientError], None] | None = None,
) -> T:
    """Return the result of ``act``; call it again while the service or Keystone is unavailable.

    The pauses grow up to ``longest_pause`` seconds. After ``attempts`` calls (None: no limit),
    raise the error of the last one; with a limit, raise an error of TLS at once, which seldom
    passes. ``on_retry`` is called with each error before the pause.
    """
    import tenacity  # noqa: PLC0415 - takes long, and most commands need no second attempt

    def report(state: tenacity.RetryCallState) -> None:
        error = state.outcome and state.outcome.exception()
        if on_retry is not None and isinstance(error, ClientError):
            on_retry(error)

    def is_passing(error: BaseException) -> bool:
        return isinstance(error, _PASSING) and (
            attempts is None or not isinstance(error, TlsFailed)
        )

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_passing),
        stop=tenacity.stop_never if attempts is None else tenacity.stop_after_attempt(attempts),
        wait=tenacity.wait_exponential(multiplier=_FIRST_PAUSE, max=longest_pause),
        before_sleep=report,
        reraise=True,
    )
    return retrying(act)


def _encoded(query: Query) -> list[tuple[str, str]]:
    pairs = []
    for name, given in query.items():
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, bool):
                pairs.append((name, str(value).lower()))
            elif value is not None:
                is_time = isinstance(value, datetime)
                pairs.append((name, moment(value) if is_time else str(value)))
    return pairs


def _reason(error: BaseException | None) -> str:
    """Return the innermost reason of a failed connection, such as "Connection refused"."""
    text = _one_line(error)
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.strerror:
            text = cause.strerror
        elif isinstance(cause, ConnectionError):  # for example RemoteDisconnected
            text = _one_line(cause)
    return text


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        nested = getattr(error, "reason", None) or next(iter(error.args), None)
        cause = error.__cause__ or error.__context__
        error = cause or (nested if isinstance(nested, BaseException) else None)


def _is_connecting(error: BaseException) -> bool:
    from requests import ConnectTimeout  # noqa: PLC0415 - see TYPE_CHECKING

    return any(isinstance(cause, ConnectTimeout) for cause in _causes(error))


def _one_line(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST_EXCERPT else f"{text[:_LONGEST_EXCERPT]}..."
