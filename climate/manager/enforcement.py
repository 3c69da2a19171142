"""Client of the operator's enforcement service, which implements Blazar's HTTP protocol.

climate sends a POST request before it creates a lease (``check-create``), before it changes a lease
(``check-update``), and after a lease ends (``on-end``). The answer HTTP 204 allows the lease. HTTP
403 denies the lease, with a reason in the key ``message`` of the JSON body. Any other answer to a
check, or no answer, also prevents the lease or its change, unless the option ``[enforcement]
fail_open`` is set. During a request, no database transaction is open.
"""

import json
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

import requests
from oslo_config.cfg import ConfigOpts

from climate.config.registry import Misconfigured
from climate.core.errors import EnforcementDenied, EnforcementUnavailable

LOG = logging.getLogger(__name__)

_PATHS = {"check_create": "check-create", "check_update": "check-update", "on_end": "on-end"}
_ADDRESSES = (
    "external_service_base_endpoint",
    *(f"external_service_{name}_endpoint" for name in _PATHS),
)
_LONGEST_ANSWER = 8 * 1024
_LONGEST_REASON = 1000
# Pause (s) before the next report to an unavailable service, and the number of parallel reports.
# Both are limited because a worker that waits for the service cannot start leases.
_PAUSE = 10.0
_PARALLEL_REPORTS = 2


class Busy(EnforcementUnavailable):
    """Raised if climate does not send a report now; the caller should retry soon.

    A report tells the enforcement service that a lease has ended. climate sends no report while two
    other reports are in progress, or within ten seconds after a report failed.
    """


class Enforcer:
    """Client of the operator's enforcement service. Thread-safe.

    ``checks_create`` and ``checks_update`` state whether the service checks new leases and changes.
    ``reports_ends`` states whether climate reports the ends of leases to the service.
    """

    def __init__(self, conf: ConfigOpts) -> None:
        options = conf.enforcement
        base = (options.external_service_base_endpoint or "").rstrip("/")
        self._urls = {
            name: options[f"external_service_{name}_endpoint"] or (base and f"{base}/{path}")
            for name, path in _PATHS.items()
        }
        self.checks_create = bool(self._urls["check_create"])
        self.checks_update = bool(self._urls["check_update"])
        self.reports_ends = bool(self._urls["on_end"])
        token = options.external_service_token
        self._headers = {"Content-Type": "application/json"}
        self._headers |= {"X-Auth-Token": token} if token else {}
        self._timeouts = (options.connect_timeout, options.timeout)
        self._verify = options.cafile or True
        self._fail_open = options.fail_open
        self._cloud = {"auth_url": options.auth_url, "region_name": conf.service_user.region_name}
        self._reporters = threading.Semaphore(_PARALLEL_REPORTS)
        self._unavailable_until = 0.0

    def check_create(self, lease: Mapping[str, Any]) -> None:
        """Return if the enforcement service allows a new lease; otherwise raise.

        Raises EnforcementDenied if the service denies the lease. Raises EnforcementUnavailable if
        the service gives no valid answer and the option ``fail_open`` is not set.
        """
        self._check("check_create", {"lease": lease})

    def check_update(self, current: Mapping[str, Any], lease: Mapping[str, Any]) -> None:
        """Return if the enforcement service allows a change of a lease; otherwise raise.

        ``current`` is the lease before the change, ``lease`` after it. Raises the errors of
        ``check_create``.
        """
        self._check("check_update", {"current_lease": current, "lease": lease})

    def on_end(self, lease: Mapping[str, Any]) -> None:
        """Report the end of a lease to the enforcement service.

        Raises Busy if nothing was sent; the caller should retry soon. Raises EnforcementUnavailable
        if the service gave no valid answer. If the service denies the end, this is only logged,
        because the lease has ended already.
        """
        pausing = time.monotonic() < self._unavailable_until
        if pausing or not self._reporters.acquire(blocking=False):
            raise Busy("the enforcement service is busy or away")
        try:
            self._call("on_end", {"lease": lease})
        except EnforcementUnavailable:
            self._unavailable_until = time.monotonic() + _PAUSE
            raise
        except EnforcementDenied as error:
            LOG.warning(
                "the enforcement service rejected the report of an end, the lease ended anyway: %s",
                error.message,
            )
        finally:
            self._reporters.release()

    def _check(self, name: str, body: Mapping[str, Any]) -> None:
        try:
            self._call(name, body)
        except EnforcementUnavailable as error:
            if not self._fail_open:
                raise
            LOG.warning(
                "allowed a lease without the service's approval ([enforcement] fail_open): %s",
                error.message,
            )

    def _call(self, name: str, body: Mapping[str, Any]) -> None:
        owner = {key: body["lease"][key] for key in ("user_id", "project_id")}
        try:
            status, text = self._post(self._urls[name], {"context": owner | self._cloud, **body})
        except (OSError, ValueError) as error:  # also errors that ``requests`` does not wrap
            LOG.warning("%s: the enforcement service does not answer: %s", name, error)
            raise EnforcementUnavailable(
                "The enforcement service of this cloud does not answer: try again later"
            ) from error
        if status == requests.codes.no_content:
            return
        if status == requests.codes.forbidden:
            raise EnforcementDenied(_reason(text))
        LOG.warning(
            "%s: the enforcement service answered with the unexpected status %s: %s",
            name,
            status,
            text[:200],
        )
        raise EnforcementUnavailable(
            f"The enforcement service of this cloud gives no usable answer (HTTP {status}): try"
            " again later"
        )

    def _post(self, url: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Send ``body`` as JSON; return the HTTP status and at most the first 8 KiB of the answer.

        A deadline limits the whole exchange. The time-outs of the library ``requests`` would not be
        enough, because they limit only the time of each single read. Raises OSError, ValueError.
        """
        connect, read = self._timeouts
        deadline = time.monotonic() + connect + read
        with requests.post(
            url,
            data=json.dumps(body),
            headers=self._headers,
            timeout=self._timeouts,
            verify=self._verify,
            allow_redirects=False,
            stream=True,
        ) as answer:
            content = b""
            for chunk in answer.iter_content(1):
                content += chunk
                if len(content) == _LONGEST_ANSWER:
                    break
                if time.monotonic() > deadline:
                    raise requests.Timeout(f"no whole answer within {read} seconds")
            return answer.status_code, content


def _reason(text: bytes) -> str:
    """Return the ``message`` in the answer of the service; a default text if there is no message.

    ``text`` is the body of the answer.
    """
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = None
    if isinstance(message, str) and message.strip():
        return message[:_LONGEST_REASON]
    return "The enforcement service of this cloud does not allow it"


def for_config(conf: ConfigOpts) -> Enforcer | None:
    """Return the client of the enforcement service; None if no address is configured.

    Raises Misconfigured if a call of the service may take as long as the option ``hold_timeout``:
    after ``hold_timeout``, climate gives up a new lease that the service has not allowed yet.
    """
    options = conf.enforcement
    if not any(options[name] for name in _ADDRESSES):
        return None
    longest = options.connect_timeout + options.timeout
    if options.hold_timeout <= longest:
        raise Misconfigured(
            f"[enforcement] hold_timeout ({options.hold_timeout:g}) must be more than"
            f" connect_timeout and timeout together ({longest:g}): a lease would be released"
            " while its answer is waited for"
        )
    return Enforcer(conf)
