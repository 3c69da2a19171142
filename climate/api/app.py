"""The WSGI application: every route of v1 (v2 has its own table), and what is around each view."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from flask import Flask, Response, jsonify, request
from oslo_config.cfg import ConfigOpts

from climate.api import auth, discovery, errors, health
from climate.api import auth as api_auth
from climate.api.call import Answer, Api, Call
from climate.api.policy import Policy
from climate.api.v1 import floatingips, hosts, leases, microversion, networks
from climate.api.v2 import routes as v2
from climate.clock import Clock
from climate.core.errors import InvalidInput, NotFound
from climate.core.matching.quoting import is_storable
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.process.runtime import Runtime
from climate.observability import log_context

LOG = logging.getLogger(__name__)

View = Callable[..., Answer]

_READING = {"GET", "HEAD"}
_LARGEST_BODY = 1024 * 1024
# In a request's environment: when it came, and by a watch of which nobody knows the time.
_ASKED_AT = "climate.asked_at"
_BEGAN = "climate.began"

# Seen by anyone, identified or not.
OPEN: list[tuple[str, str, Callable[[Api], Answer]]] = [
    ("GET", "/", discovery.versions),
    ("GET", "/versions", discovery.versions),
    ("GET", "/v1", discovery.version_1),
    ("GET", "/v1/", discovery.version_1),
    ("GET", "/healthz", health.healthz),
    ("GET", "/readyz", health.readyz),
    ("GET", "/metrics", health.metrics),
    *((route.method, route.path, route.view) for route in v2.ROUTES if route.rule is None),
]
# For identified callers; the rule is checked first, for the caller's own project.
ROUTES: list[tuple[str, str, str, View]] = [
    ("GET", "/v1/leases", "leases:get", leases.index),
    ("POST", "/v1/leases", "leases:post", leases.create),
    ("GET", "/v1/leases/<lease_id>", "leases:get", leases.show),
    ("PUT", "/v1/leases/<lease_id>", "leases:put", leases.update),
    ("DELETE", "/v1/leases/<lease_id>", "leases:delete", leases.delete),
    ("GET", "/v1/plugins", "plugins:get", leases.plugins),
    ("GET", "/v1/os-hosts", "oshosts:get", hosts.index),
    ("POST", "/v1/os-hosts", "oshosts:post", hosts.create),
    ("GET", "/v1/os-hosts/allocations", "oshosts:get_allocations", hosts.allocations),
    ("GET", "/v1/os-hosts/properties", "oshosts:get_resource_properties", hosts.properties),
    (
        "PATCH",
        "/v1/os-hosts/properties/<name>",
        "oshosts:update_resource_properties",
        hosts.update_property,
    ),
    ("GET", "/v1/os-hosts/<host_id>", "oshosts:get", hosts.show),
    ("PUT", "/v1/os-hosts/<host_id>", "oshosts:put", hosts.update),
    ("DELETE", "/v1/os-hosts/<host_id>", "oshosts:delete", hosts.delete),
    ("GET", "/v1/os-hosts/<host_id>/allocation", "oshosts:get_allocations", hosts.allocation),
    ("GET", "/v1/floatingips", "floatingips:get", floatingips.index),
    ("POST", "/v1/floatingips", "floatingips:post", floatingips.create),
    ("GET", "/v1/floatingips/<floatingip_id>", "floatingips:get", floatingips.show),
    ("DELETE", "/v1/floatingips/<floatingip_id>", "floatingips:delete", floatingips.delete),
    ("GET", "/v1/networks", "networks:get", networks.index),
    ("POST", "/v1/networks", "networks:post", networks.create),
    ("GET", "/v1/networks/<network_id>", "networks:get", networks.show),
    ("DELETE", "/v1/networks/<network_id>", "networks:delete", networks.delete),
    *((route.method, route.path, route.rule, route.view) for route in v2.ROUTES if route.rule),
]


def make_app(conf: ConfigOpts, runtime: Runtime, dispatcher: Dispatcher | None) -> Flask:
    """Return the application; ``dispatcher`` is this process's, for /readyz."""
    app = Flask("climate", static_folder=None, template_folder="api/v2/templates")
    app.config["MAX_CONTENT_LENGTH"] = _LARGEST_BODY
    app.json.sort_keys = False  # type: ignore[attr-defined]  # the default provider has it
    app.url_map.strict_slashes = True
    app.url_map.redirect_defaults = False
    app.url_map.merge_slashes = False
    app.before_request(_check_url)
    app.after_request(partial(_measure, runtime))
    app.teardown_request(lambda _: log_context.forget())
    api = Api(conf, runtime, _strategy(app, conf), Policy(conf), dispatcher)
    app.wsgi_app = _noting_when(app.wsgi_app, runtime.clock)  # type: ignore[method-assign]
    for method, path, view in OPEN:
        app.add_url_rule(path, f"{method} {path}", _open(api, view), methods=[method])
    for method, path, rule, guarded in ROUTES:
        handler = _guarded(api, rule, guarded)
        app.add_url_rule(path, f"{method} {path}", handler, methods=[method])
    app.after_request(_add_headers)
    errors.register(app)
    return app


def _strategy(app: Flask, conf: ConfigOpts) -> auth.Identify:
    """Return how callers are identified with ``[api] auth_strategy``."""
    if conf.api.auth_strategy == "keystone":
        return api_auth.guard(app, conf, {path for _, path, _ in OPEN})
    return auth.without_authentication(conf)


def _open(api: Api, view: Callable[[Api], Answer]) -> Callable[[], Response]:
    def handle() -> Response:
        return _response(*view(api))

    return handle


def _guarded(api: Api, rule: str, view: View) -> Callable[..., Response]:
    """Wrap a view: version, identity and policy come before it, in this order."""

    def handle(**path: str) -> Response:
        if request.path.startswith("/v1"):
            microversion.check(request.headers.get(microversion.HEADER))
        caller = api.identify(request)
        log_context.identified(caller.user_id, caller.project_id, path.get("lease_id"))
        call = Call(api, caller, request.environ[_ASKED_AT])
        call.require(rule)
        return _response(*view(call, **path))

    return handle


def _response(body: Any, status: int, headers: Mapping[str, str] | None = None) -> Response:  # noqa: ANN401 - JSON
    if isinstance(body, str):
        response = Response(body, mimetype="text/html")
    elif isinstance(body, Iterator):
        response = Response(body, mimetype="text/event-stream")
    else:
        response = Response() if body is None else jsonify(body)
    response.status_code = status
    response.headers.update(headers or {})
    if body is None:
        del response.headers["Content-Type"]
    if "ETag" in response.headers:
        response.make_conditional(request)  # to who has it already, 304
    return response


def _noting_when(wsgi_app: Any, clock: Clock) -> Callable[..., Any]:  # noqa: ANN401 - as WSGI is
    """Return the application that notes when a request came, before Keystone is asked about it."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:  # noqa: ANN401
        environ[_ASKED_AT], environ[_BEGAN] = clock.now(), time.monotonic()
        return wsgi_app(environ, start_response)

    return app


def _check_url() -> None:
    """Give the request its id, and refuse what no database could look up."""
    request.environ["climate.request_id"] = request_id = f"req-{uuid.uuid4()}"
    log_context.begin_request(request_id, request.headers.get("X-OpenStack-Request-ID"))
    if not is_storable(request.path):
        raise NotFound("The requested URL was not found on the server.")
    for name, value in request.args.items(multi=True):
        if not (is_storable(name) and is_storable(value)):
            raise InvalidInput("The query string contains a NUL or half a surrogate pair")


def _add_headers(response: Response) -> Response:
    response.headers["X-Openstack-Request-Id"] = request.environ["climate.request_id"]
    if request.url_rule is not None and request.url_rule.rule.startswith("/v1/"):
        microversion.add_headers(response)
    return response


def _measure(runtime: Runtime, response: Response) -> Response:
    """Measure the request, and log it if it was to change something."""
    route = request.url_rule.rule if request.url_rule is not None else "none"
    seconds = time.monotonic() - request.environ[_BEGAN]
    runtime.metrics.request(request.method, route, response.status_code, seconds)
    level = logging.DEBUG if request.method in _READING else logging.INFO
    LOG.log(level, "%s %s: %s", request.method, request.path, response.status_code)
    return response
