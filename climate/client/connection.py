"""Finds out where the service is and how to sign in: clouds.yaml, ``OS_*`` variables, or nothing.

The names of options are those of the variables: ``OS_AUTH_TYPE`` is ``auth_type``. A cloud of
clouds.yaml is read by openstacksdk; all else by keystoneauth alone, which starts a second faster.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from climate.client.errors import NotConfigured
from climate.client.transport import TIMEOUT

if TYPE_CHECKING:  # takes a third of a second, which `climate --help` does not need
    from keystoneauth1.session import Session

#: The type of the service in Keystone's catalog: that of Blazar, whose API climate has, too.
SERVICE_TYPE = "reservation"
OVERRIDE = "reservation_endpoint_override"

_VERSION = re.compile(r"/v[12](\.\d+)?/*$")
_TRUE = {"1", "true", "yes", "on"}
_ADVICE = (
    "Set OS_CLOUD to a cloud of clouds.yaml, or set OS_AUTH_URL and the other OS_* variables of"
    " your cloud; for a service without authentication, set OS_AUTH_TYPE=none and"
    " OS_ENDPOINT=http://127.0.0.1:1234"
)

# An option that says how to sign in without clouds.yaml.
_SIGN_IN = {"auth_type", "auth_url", "endpoint", "token"}
# Options that openstacksdk does not look for in the part "auth" of a cloud.
_NOT_FOR_AUTH = {
    *("cloud", "region_name", "interface", "auth_type", OVERRIDE),
    *("cacert", "cert", "key", "insecure"),
}

#: A session, and a function that returns the URL of the service without a version.
Place = tuple["Session", Callable[[], str]]


def root_of(endpoint: str) -> str:
    """Return the URL of the service without a version: catalogs have that of v1."""
    return _VERSION.sub("", endpoint.rstrip("/"))


def options_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options in ``OS_*`` variables, without empty ones."""
    return {
        name.removeprefix("OS_").lower(): value
        for name, value in environ.items()
        if name.startswith("OS_") and value
    }


def open_place(given: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Place:
    """Return the session and the place that ``given`` options and ``environ`` describe.

    A given option takes precedence over its variable. Raises NotConfigured. No request is sent yet.
    """
    given = {name: value for name, value in given.items() if value is not None}
    if "cloud" in given and "endpoint" in given:
        given[OVERRIDE] = given.pop("endpoint")
    options = {**options_of(environ), **given}
    names_a_cloud = "cloud" in given or ("cloud" in options and not given.keys() & _SIGN_IN)
    if names_a_cloud or not options.keys() & _SIGN_IN:
        return _from_clouds_yaml(options.get("cloud"), given)
    return _from_options(options)


def place_of(session: "Session", options: Mapping[str, Any]) -> Place:
    """Return the place of the service that the catalog of ``session`` names."""
    endpoint = options.get(OVERRIDE)

    def find() -> str:
        from keystoneauth1.exceptions import EndpointNotFound  # noqa: PLC0415 - see TYPE_CHECKING

        found = endpoint
        with suppress(EndpointNotFound):
            found = endpoint or session.get_endpoint(
                service_type=SERVICE_TYPE,
                region_name=options.get("region_name"),
                interface=options.get("interface") or options.get("endpoint_type") or "public",
            )
        return _known(found, options.get("region_name"))

    return session, find


def _known(endpoint: str | None, region: str | None) -> str:
    if not endpoint:
        where = f" in region {region}" if region else ""
        raise NotConfigured(
            f"The catalog has no endpoint of the type {SERVICE_TYPE}{where}. Check the region, or"
            f" set OS_{OVERRIDE.upper()} to the URL of climate."
        )
    if not endpoint.startswith(("http://", "https://")):
        raise NotConfigured(
            f"The endpoint {endpoint!r} is not a URL: it must begin with http:// or https://."
        )
    return root_of(endpoint)


def _from_options(options: Mapping[str, Any]) -> Place:
    from keystoneauth1 import exceptions, loading  # noqa: PLC0415 - see TYPE_CHECKING

    kind = options.get("auth_type") or "password"
    if kind in {"none", "admin_token"} and not options.get("endpoint"):
        raise NotConfigured(f"OS_AUTH_TYPE={kind} needs OS_ENDPOINT, the URL of climate.")
    if kind == "admin_token" and not options.get("token"):
        raise NotConfigured("OS_AUTH_TYPE=admin_token needs OS_TOKEN, such as alice:lab.")
    try:
        loader: loading.BaseLoader[Any] = loading.get_plugin_loader(kind)
        auth = loader.load_from_options_getter(
            lambda option: next(
                (options[name.dest] for name in option._all_opts if name.dest in options),  # noqa: SLF001
                None,
            )
        )
    except exceptions.NoMatchingPlugin:
        known = ", ".join(sorted(loading.get_available_plugin_names()))
        raise NotConfigured(f"Unknown OS_AUTH_TYPE {kind!r}; known: {known}.") from None
    except exceptions.ClientException as error:
        raise NotConfigured(f"OS_AUTH_TYPE={kind}: {error}") from None
    endpoint = options.get(OVERRIDE) or options.get("endpoint")
    return place_of(_session(auth, options), {**options, OVERRIDE: endpoint})


def _session(auth: Any, options: Mapping[str, Any]) -> "Session":  # noqa: ANN401 - a plugin
    from keystoneauth1.session import Session  # noqa: PLC0415 - see TYPE_CHECKING

    insecure = str(options.get("insecure", "")).lower() in _TRUE
    cert, key = options.get("cert"), options.get("key")
    return Session(
        auth=auth,
        verify=not insecure and (options.get("cacert") or True),
        cert=(cert, key) if cert and key else cert,
        app_name="climate",
        timeout=TIMEOUT,
    )


def _from_clouds_yaml(cloud: str | None, given: Mapping[str, Any]) -> Place:
    from keystoneauth1.exceptions import ClientException  # noqa: PLC0415 - see TYPE_CHECKING
    from openstack import config, exceptions  # noqa: PLC0415 - takes a second

    auth = {name: value for name, value in given.items() if name not in _NOT_FOR_AUTH}
    settings: dict[str, Any] = {
        name: given[name] for name in _NOT_FOR_AUTH & given.keys() if name != "cloud"
    }
    if auth:
        settings["auth"] = auth
    try:
        region = config.OpenStackConfig().get_one(cloud, **settings)
        session = region.get_session()
        session.timeout = session.timeout or TIMEOUT  # api_timeout of clouds.yaml is optional
    except (exceptions.SDKException, ClientException) as error:
        reason = "Nothing says where climate is." if cloud is None else str(error)
        raise NotConfigured(f"{reason} {_ADVICE}.") from None
    return session, lambda: _known(region.get_session_endpoint(SERVICE_TYPE), region.region_name)
