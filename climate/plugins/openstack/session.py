"""The way to the services of an OpenStack cloud: our user's session, and one adapter per service.

Nothing waits for ever, and nothing is sent twice that may have arrived: a connection that cannot
be made is tried again, a request that was sent is repeated only if it reads. What changes something
is sent only as far as the fence permits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from keystoneauth1.token_endpoint import Token
from novaclient import client
from novaclient import exceptions as refusals
from oslo_config.cfg import ConfigOpts
from requests import PreparedRequest, Response
from urllib3.util import Retry

from climate.config.registry import SERVICE_USER, Misconfigured
from climate.core.errors import BackendUnavailable
from climate.plugins import fencing

# The oldest in which migrations have UUIDs; from 2.88 on hypervisors lack most properties.
NOVA = "2.59"
# What tokens may be for, besides a trust.
_SCOPES = frozenset(
    {
        "system_scope",
        "domain_id",
        "domain_name",
        "project_id",
        "project_name",
        "project_domain_id",
        "project_domain_name",
    }
)
# keystoneauth's own connect_retries would also repeat a POST whose answer timed out.
_READS = {"GET", "HEAD", "OPTIONS"}
_RETRY = Retry(
    total=None,
    connect=3,
    read=1,
    redirect=0,
    status=0,
    other=0,
    allowed_methods={"GET", "HEAD"},
    backoff_factor=0.5,
    respect_retry_after_header=False,
)


class Transport(TCPKeepAliveAdapter):
    """What all requests to the cloud go through."""

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Send a request; raises Fenced instead if it may not change anything any more."""
        if request.method not in _READS:
            fencing.check()
        answer: Response = super().send(request, *args, **kwargs)
        return answer


def make_session(conf: ConfigOpts, trust_id: str | None = None) -> Session:
    """Return the session of the user in ``[service_user]``; raises Misconfigured.

    By a trust it is that of the user who trusts it. It asks for no token before the first request.
    Threads may share it.
    """
    try:
        # Only now is it known whether auth_section leads to another section.
        loading.register_auth_conf_options(conf, SERVICE_USER)
        scope = _trusted(conf, trust_id) if trust_id else {}
        auth = loading.load_auth_from_conf_options(conf, SERVICE_USER, **scope)
        if auth is None:
            raise Misconfigured(f"[{SERVICE_USER}] auth_type is not set: who are we in the cloud?")
        session = loading.load_session_from_conf_options(
            conf, SERVICE_USER, auth=auth, app_name="climate"
        )
    except ClientException as error:
        raise Misconfigured(f"[{SERVICE_USER}]: {error}") from error
    return _patient(session)


def session_of(conf: ConfigOpts, token: str, endpoint: str) -> Session:
    """Return a session that has just this token, for one service."""
    auth = Token(endpoint, token)
    session = loading.load_session_from_conf_options(
        conf, SERVICE_USER, auth=auth, app_name="climate"
    )
    return _patient(session)


def _patient(session: Session) -> Session:
    for scheme, plain in list(session.session.adapters.items()):
        if isinstance(plain, TCPKeepAliveAdapter):
            safe: dict[str, Any] = {
                "tls_ciphers": plain.tls_ciphers,
                "tls_min_version": plain.tls_min_version,
            }
            session.session.mount(scheme, Transport(max_retries=_RETRY, **safe))
    return session


def _trusted(conf: ConfigOpts, trust_id: str) -> dict[str, str | None]:
    """Return options that make a trust the only scope; raises Misconfigured."""
    section = conf[conf[SERVICE_USER].auth_section or SERVICE_USER]
    known = {option.dest for option in loading.get_plugin_loader(section.auth_type).get_options()}
    if "trust_id" not in known:
        raise Misconfigured(
            f"[{SERVICE_USER}] auth_type {section.auth_type} is of no use in trusts"
        )
    return {"trust_id": trust_id, **dict.fromkeys(known & _SCOPES)}


def adapter(
    conf: ConfigOpts, session: Session, group: str, default_microversion: str | None = None
) -> Adapter:
    """Return the way to the service that ``[group]`` is about."""
    section = conf[group]
    return Adapter(
        session,
        service_type=section.service_type,
        service_name=section.service_name,
        interface=section.valid_interfaces,
        region_name=section.region_name or conf[SERVICE_USER].region_name,
        endpoint_override=section.endpoint_override,
        default_microversion=default_microversion,
    )


def nova_client(conf: ConfigOpts, session: Session) -> Any:  # noqa: ANN401 - novaclient's
    """Return the client of Nova."""
    way = adapter(conf, session, "nova")
    return client.Client(
        NOVA,
        session=session,
        service_type=way.service_type,
        region_name=way.region_name,
        endpoint_type=way.interface,
        endpoint_override=way.endpoint_override,
    )


@contextmanager
def answers(service: str = "Nova") -> Iterator[None]:
    """Turn what a client raises into an error that says who did not do what."""
    try:
        yield
    except (ClientException, refusals.ClientException) as error:
        raise BackendUnavailable(f"{service} does not do it: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what the service says; Nova's way to say so is lost on keystoneauth."""
    response: Any = getattr(error, "response", None)
    try:
        [told] = response.json().values()
        return f"{told['message']} (HTTP {response.status_code})"
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(error)
