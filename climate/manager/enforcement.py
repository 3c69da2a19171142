"""The client of an operator's enforcement service, which speaks Blazar's protocol over HTTP.

It is asked with POST whether a lease may be (``check-create``) or become (``check-update``) and
told that one is over (``on-end``). 204 means yes; 403 means no, with a reason in ``message``;
anything else is no answer. What that means for a lease, ``fail_open`` says. Never called while a
transaction is open.
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
# While the service is away, ends are told to it no more often (seconds), and by few at once:
# whoever waits for it cannot start a lease.
_PAUSE = 10.0
_TELLERS = 2


class Busy(EnforcementUnavailable):
    """Enough others wait for the service right now, or it was just found to be away."""


class Enforcer:
    """Asks the service. Safe to share between threads."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Take addresses and patience from ``[enforcement]``."""
        options = conf.enforcement
        base = (options.external_service_base_endpoint or "").rstrip("/")
        self._urls = {
            name: options[f"external_service_{name}_endpoint"] or (base and f"{base}/{path}")
            for name, path in _PATHS.items()
        }
        token = options.external_service_token
        self._headers = {"Content-Type": "application/json"}
        self._headers |= {"X-Auth-Token": token} if token else {}
        self._patience = (options.connect_timeout, options.timeout)
        self._verify = options.cafile or True
        self._fail_open = options.fail_open
        self._where = {"auth_url": options.auth_url, "region_name": conf.service_user.region_name}
        self._tellers = threading.Semaphore(_TELLERS)
        self._away_until = 0.0

    @property
    def checks_create(self) -> bool:
        """Tell whether anyone is asked about new leases."""
        return bool(self._urls["check_create"])

    @property
    def checks_update(self) -> bool:
        """Tell whether anyone is asked about changes."""
        return bool(self._urls["check_update"])

    @property
    def reports_ends(self) -> bool:
        """Tell whether anyone wants to know what is over."""
        return bool(self._urls["on_end"])

    def check_create(self, lease: Mapping[str, Any]) -> None:
        """Return if the lease may be; raises EnforcementDenied, EnforcementUnavailable."""
        self._check("check_create", {"lease": lease})

    def check_update(self, current: Mapping[str, Any], lease: Mapping[str, Any]) -> None:
        """Return if the lease may change so; raises EnforcementDenied, EnforcementUnavailable."""
        self._check("check_update", {"current_lease": current, "lease": lease})

    def on_end(self, lease: Mapping[str, Any]) -> None:
        """Tell that a lease is over; raises EnforcementUnavailable, Busy if it is not worth a try.

        A refusal is an answer too: there is nothing to be refused.
        """
        if time.monotonic() < self._away_until or not self._tellers.acquire(blocking=False):
            raise Busy("the enforcement service is busy or away")
        try:
            self._ask("on_end", {"lease": lease})
        except EnforcementUnavailable:
            self._away_until = time.monotonic() + _PAUSE
            raise
        except EnforcementDenied as error:
            LOG.warning("the enforcement service minds an end: %s", error.message)
        finally:
            self._tellers.release()

    def _check(self, name: str, body: Mapping[str, Any]) -> None:
        try:
            self._ask(name, body)
        except EnforcementUnavailable as error:
            if not self._fail_open:
                raise
            LOG.warning("granted all the same ([enforcement] fail_open): %s", error.message)

    def _ask(self, name: str, body: Mapping[str, Any]) -> None:
        owner = {key: body["lease"][key] for key in ("user_id", "project_id")}
        try:
            status, text = self._post(self._urls[name], {"context": owner | self._where, **body})
        except (OSError, ValueError) as error:  # all of requests', and what it lets through
            LOG.warning("%s: the enforcement service does not answer: %s", name, error)
            raise EnforcementUnavailable(
                "The enforcement service of this cloud does not answer: try again later"
            ) from error
        if status == requests.codes.no_content:
            return
        if status == requests.codes.forbidden:
            raise EnforcementDenied(_reason(text))
        LOG.warning("%s: the enforcement service answers %s: %s", name, status, text[:200])
        raise EnforcementUnavailable(
            f"The enforcement service of this cloud gives no usable answer (HTTP {status}): try"
            " again later"
        )

    def _post(self, url: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Return status and (the beginning of) the body; raises OSError, ValueError.

        A deadline for all of it, as a server may well send a byte now and then for ever.
        """
        connect, whole = self._patience
        deadline = time.monotonic() + connect + whole
        with requests.post(
            url,
            data=json.dumps(body),
            headers=self._headers,
            timeout=self._patience,
            verify=self._verify,
            allow_redirects=False,
            stream=True,
        ) as answer:
            found = b""
            for chunk in answer.iter_content(1):
                found += chunk
                if len(found) == _LONGEST_ANSWER:
                    break
                if time.monotonic() > deadline:
                    raise requests.Timeout(f"no whole answer within {whole} seconds")
            return answer.status_code, found


def _reason(text: bytes) -> str:
    """Return what the service said, if it said anything that can be shown."""
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = None
    if isinstance(message, str) and message.strip():
        return message[:_LONGEST_REASON]
    return "The enforcement service of this cloud does not allow it"


def for_config(conf: ConfigOpts) -> Enforcer | None:
    """Return the client, None if no address is configured; raises Misconfigured."""
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
