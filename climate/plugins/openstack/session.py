"""Creates sessions and clients for the services of an OpenStack cloud.

Every request has a timeout. The transport retries if it cannot connect. Once a request is sent, the
transport repeats the request only if its method is GET or HEAD. If the thread has a fencing token,
the transport sends requests that change the cloud only while the token is valid.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException
from keystoneauth1.plugin import AUTH_INTERFACE
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from keystoneauth1.token_endpoint import Token
from novaclient import client
from novaclient import exceptions as nova_errors
from oslo_config.cfg import ConfigOpts
from requests import PreparedRequest, Response
from urllib3.util import Retry

from climate.config.registry import SERVICE_USER, Misconfigured
from climate.core.errors import BackendUnavailable
from climate.plugins import fencing

# The oldest version in which migrations have UUIDs. Since 2.88 hypervisors lack most properties.
NOVA = "2.59"
# The options of keystoneauth that select a scope of the token other than a trust.
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
# The lowest HTTP status of errors.
_REFUSED = 400
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
    """The HTTP transport of all requests to the cloud."""

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """Send a request to the cloud.

        If the request could change the cloud and the thread's fencing token is not valid any more,
        send nothing and raise Fenced.
        """
        if request.method not in _READS:
            fencing.check()
        answer: Response = super().send(request, *args, **kwargs)
        return answer


def make_session(conf: ConfigOpts, trust_id: str | None = None) -> Session:
    """Return a new session of climate's own user, which ``[service_user]`` configures.

    If ``trust_id`` is set, the session acts as the user who created the trust. Sends no request:
    the session gets its Keystone token before its first request. Threads can share the session.
    Raises Misconfigured if ``[service_user]`` is incomplete, or does not support trusts.
    """
    try:
        # The section is known only now, because auth_section can name another one.
        loading.register_auth_conf_options(conf, SERVICE_USER)
        scope = _trusted(conf, trust_id) if trust_id else {}
        auth = loading.load_auth_from_conf_options(conf, SERVICE_USER, **scope)
        if auth is None:
            raise Misconfigured(
                f"[{SERVICE_USER}] auth_type is not set: climate needs a user of the cloud"
            )
        session = loading.load_session_from_conf_options(
            conf, SERVICE_USER, auth=auth, app_name="climate"
        )
    except ClientException as error:
        raise Misconfigured(f"[{SERVICE_USER}]: {error}") from error
    return _with_timeouts(session)


def token_session(conf: ConfigOpts, token: str, endpoint: str) -> Session:
    """Return a session that sends the token of a user to the service at ``endpoint``."""
    auth = Token(endpoint, token)
    session = loading.load_session_from_conf_options(
        conf, SERVICE_USER, auth=auth, app_name="climate"
    )
    return _with_timeouts(session)


def _with_timeouts(session: Session) -> Session:
    for scheme, plain in list(session.session.adapters.items()):
        if isinstance(plain, TCPKeepAliveAdapter):
            safe: dict[str, Any] = {
                "tls_ciphers": plain.tls_ciphers,
                "tls_min_version": plain.tls_min_version,
            }
            session.session.mount(scheme, Transport(max_retries=_RETRY, **safe))
    return session


def _trusted(conf: ConfigOpts, trust_id: str) -> dict[str, str | None]:
    """Return the options of keystoneauth for a session that uses a trust.

    Raises Misconfigured if the configured ``auth_type`` does not support trusts.
    """
    section = conf[conf[SERVICE_USER].auth_section or SERVICE_USER]
    known = {option.dest for option in loading.get_plugin_loader(section.auth_type).get_options()}
    if "trust_id" not in known:
        raise Misconfigured(
            f"[{SERVICE_USER}] auth_type {section.auth_type} does not support trusts: use password"
        )
    return {"trust_id": trust_id, **dict.fromkeys(known & _SCOPES)}


def adapter(
    conf: ConfigOpts, session: Session, group: str, default_microversion: str | None = None
) -> Adapter:
    """Return a client for the service that the configuration section ``group`` describes.

    Requests without a microversion (API version) have ``default_microversion``.
    """
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


def keystone(session: Session) -> Adapter:
    """Return a client for the Keystone with which the session authenticates."""
    return Adapter(
        session,
        service_type="identity",
        interface=AUTH_INTERFACE,  # type: ignore[arg-type]  # a marker that is not a string
        version="3",
    )


def nova_client(conf: ConfigOpts, session: Session) -> Any:  # noqa: ANN401 - novaclient's
    """Return a novaclient for the Nova that ``[nova]`` configures."""
    service = adapter(conf, session, "nova")
    return client.Client(
        NOVA,
        session=session,
        service_type=service.service_type,
        region_name=service.region_name,
        endpoint_type=service.interface,
        endpoint_override=service.endpoint_override,
    )


@contextmanager
def answers(service: str = "Nova") -> Iterator[None]:
    """Context manager: convert errors of an OpenStack client to BackendUnavailable.

    The message of the new error has the name ``service``, and the reason that the service gave.
    """
    try:
        yield
    except (ClientException, nova_errors.ClientException) as error:
        raise BackendUnavailable(f"the request to {service} failed: {_reason(error)}") from error


def send(
    client: Adapter,
    service: str,
    method: str,
    path: str,
    *,
    allowed: Collection[int] = (),
    **options: Any,
) -> Response:
    """Send a request to a service, and return the response.

    HTTP statuses from 400 on are errors, except those in ``allowed``. ``options`` are arguments of
    the client's ``request``, such as ``json``. Raises BackendUnavailable with the service's reason.
    """
    with answers(service):
        response: Response = client.request(path, method, raise_exc=False, **options)
    if response.status_code < _REFUSED or response.status_code in allowed:
        return response
    try:
        [fault] = response.json().values()
        reason = fault["message"]
    except (AttributeError, KeyError, TypeError, ValueError):
        reason = f"{response.status_code} {response.reason}"
    raise BackendUnavailable(f"{service} rejected the request: {reason}")


def _reason(error: Exception) -> str:
    """Return the message in the error answer of a service, such as Nova; else the error's text."""
    response: Any = getattr(error, "response", None)
    try:
        [fault] = response.json().values()
        return f"{fault['message']} (HTTP {response.status_code})"
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(error)
