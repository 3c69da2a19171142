"""Listens to climate's notifications. It is also an example for authors of listeners.

``from_broker`` subscribes with oslo.messaging. ``from_http`` needs no broker: it reads
``GET /v2/notifications``, and starts after a given number. So it also yields notifications that
were published while the listener was stopped, as long as climate keeps them.
"""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import requests
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential

from climate.core.errors import OperatorError
from climate.notifications.emit import load_oslo_messaging

LOG = logging.getLogger(__name__)
Handler = Callable[[str, dict[str, Any]], None]
_TIMEOUT = 60
_STOP_TIMEOUT = 3.0
_WAIT = 20
_LONGEST_PAUSE = 30.0
# Statuses for which a retry does not help. Others may come from a service that is (re)starting.
_PERMANENT = frozenset(range(400, 500)) - {408, 429}


class Refused(OperatorError):
    """Raised if the service rejects the request for notifications and a retry would not help."""


@contextmanager
def from_broker(
    transport: Any,  # noqa: ANN401 - oslo.messaging is untyped
    topics: Sequence[str],
    handler: Handler,
    pool: str | None = None,
    exchange: str | None = None,
    priorities: Sequence[str] = ("info",),
) -> Iterator[None]:
    """Context manager: during the block, a thread calls ``handler`` for each notification.

    The notifications come from ``topics`` of the broker of ``transport``, which the end of the
    block closes. If the broker is not available, the listener waits for the broker. ``pool`` is the
    name of a durable queue. All listeners with the same pool share its messages, and the queue
    keeps messages while no listener is connected. If ``pool`` is None, the listener has its own
    queue, which is removed when the block ends. ``exchange`` is the broker's exchange to which the
    notifications are published (None: that of climate).
    """
    queue = pool or f"climate-listen-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    oslo_messaging = load_oslo_messaging()
    listener = oslo_messaging.get_notification_listener(
        transport,
        [oslo_messaging.Target(topic=topic, exchange=exchange) for topic in topics],
        [_endpoint(handler, priorities)],
        executor="threading",
        pool=queue,
    )
    listener.start(override_pool_size=1)  # more threads would change the order
    LOG.info("reading the topics %s from the queue %s", ", ".join(topics), queue)
    try:
        yield
    finally:
        listener.stop()
        listener.wait()
        if not pool:
            _remove(transport, queue)
        transport.cleanup()


def _endpoint(handler: Handler, priorities: Sequence[str]) -> object:
    """Return an object with a method for each priority: oslo.messaging calls that of a message.

    It acknowledges the message after that, so a crash causes a redelivery.
    """

    def receive(_context: Any, _publisher: Any, kind: Any, payload: Any, _meta: Any) -> None:  # noqa: ANN401
        handler(kind, payload)

    return SimpleNamespace(**dict.fromkeys(priorities, receive))


class BackgroundListener:
    """A thread in which a listener runs, so that no program waits until the broker is available."""

    def __init__(
        self, listen: Callable[[], AbstractContextManager[None]], pause: float = _LONGEST_PAUSE
    ) -> None:
        """Prepare; ``listen`` returns a new ``from_broker``.

        If the broker refuses, the next try follows after ``pause`` seconds.
        """
        self._listen, self._pause = listen, pause
        self._stopping, self._is_listening = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> None:
        """Start to listen, or to wait for the broker."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; wait a little for the end of the connection, if there is one."""
        self._stopping.set()
        if self._is_listening:
            self._thread.join(_STOP_TIMEOUT)

    def _run(self) -> None:
        """Listen until ``stop``. oslo.messaging itself retries, unless the broker refuses."""
        while not self._stopping.is_set():
            try:
                with self._listen():
                    self._is_listening = True
                    self._stopping.wait()
            except Exception as error:  # noqa: BLE001 - an operator may have to allow the access
                LOG.warning("cannot listen to the broker, next try in %g s: %s", self._pause, error)
                self._stopping.wait(self._pause)


def _remove(transport: Any, queue: str) -> None:  # noqa: ANN401 - oslo.messaging is untyped
    """Remove the queue of a listener that has ended; otherwise it would grow without limit."""
    try:
        # oslo.messaging has no method for this, and no option to let the broker do it.
        with (
            transport._driver._get_connection(retry=0) as connection,  # noqa: SLF001
            connection._connection_lock,  # noqa: SLF001
        ):
            connection.channel.queue_delete(queue)
    except Exception as error:  # noqa: BLE001 - an operator has to remove the queue
        LOG.warning("queue %s stays at the broker, remove it there: %s", queue, error)


def from_http(
    url: str, token: str, after: int | None = None, pause: float = 1.0
) -> Iterator[dict[str, Any]]:
    """Yield notifications with numbers above ``after`` (None: all stored ones), forever.

    ``url`` is the root of the service, and ``token`` is a Keystone token. Each request waits for
    notifications (long polling). If the service does not answer, or has too many waiting requests,
    the generator retries: the first time after ``pause`` seconds, then after longer pauses. Raises
    Refused if the service rejects the request, for example because it has already removed the
    notifications that follow ``after``.
    """
    session = requests.Session()
    session.headers["X-Auth-Token"] = token
    retrying = Retrying(
        retry=retry_if_exception_type(requests.RequestException),
        wait=wait_exponential(multiplier=pause, max=_LONGEST_PAUSE),
        before_sleep=_log_failure,
    )
    while True:
        part = retrying(_read, session, f"{url.rstrip('/')}/v2/notifications", after)
        yield from part["notifications"]
        after = part["after"]


def _log_failure(state: RetryCallState) -> None:
    # Within ``except``, oslo.log would append the whole chain of exceptions to the line.
    error = state.outcome.exception() if state.outcome else None
    assert error is not None  # noqa: S101 - tenacity calls this only after an exception
    reason = str(_root(error)) or type(error).__name__
    LOG.warning(
        "%s does not answer (%s): retrying in %g s", state.args[1], reason, state.upcoming_sleep
    )


def _read(session: requests.Session, url: str, after: int | None) -> dict[str, Any]:
    """Return the next page of notifications.

    Raises requests.RequestException if a retry may help, and Refused if it would not.
    """
    params = {"wait": _WAIT} | ({} if after is None else {"after": after})
    try:
        response = session.get(url, params=params, timeout=_TIMEOUT)
        if response.status_code in _PERMANENT:
            raise Refused(f"{url} answers {response.status_code}: {response.text}")
        response.raise_for_status()
        page = response.json()
        return {"notifications": list(page["notifications"]), "after": int(page["after"])}
    except (ValueError, LookupError, TypeError) as error:  # no URL, or not our JSON
        raise Refused(f"{url} is no log of notifications: {error}") from error


def _root(error: BaseException) -> BaseException:
    """Return the exception that caused the chain of exceptions which ends with ``error``."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
