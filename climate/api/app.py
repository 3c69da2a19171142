"""The WSGI application: registers all routes, with the checks that run before their views."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from flask import Flask, Response, abort, request
from oslo_config.cfg import ConfigOpts
from oslo_policy.policy import DocumentedRuleDefault, Operation, RuleDefault
from werkzeug.middleware.proxy_fix import ProxyFix

from climate.api import auth, discovery
from climate.api.call import ARRIVED_AT, Answer, Api, Call
from climate.api.console import pages
from climate.api.errors import rendering
from climate.api.policy import RULES, Policy
from climate.api.route import Route
from climate.api.server import compression, health
from climate.api.server.connections import MAX_BODY_BYTES, REJECTION
from climate.api.session import middleware
from climate.api.session import views as session_views
from climate.api.v1 import microversion
from climate.api.v1 import routes as v1
from climate.api.v2 import routes as v2
from climate.api.v2.feeds import views as feeds
from climate.api.v2.notifications import email_pages
from climate.clock import Clock
from climate.core.errors import InvalidInput, NotFound, PreconditionFailed
from climate.core.matching.quoting import is_storable
from climate.db.engine.ids import new_id
from climate.db.engine.types import encode_json
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.process.heartbeat import WriteTrials
from climate.manager.process.runtime import Runtime
from climate.observability import log_context

LOG = logging.getLogger(__name__)

# With these headers, browsers do not guess types, show responses in frames, or store responses.
_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
_READ_METHODS = {"GET", "HEAD"}
# The key in the WSGI environment of the arrival time by the monotonic clock.
_STARTED = "climate.started"

_SERVICE = [
    Route("GET", "/", pages.home),
    Route("GET", "/versions", discovery.versions),
    Route("GET", "/healthz", health.healthz),
    Route("GET", "/readyz", health.readyz),
    Route("GET", "/metrics", health.metrics),
    Route("GET", "/feeds/<secret>.ics", feeds.read),
]
_ALL = [
    *_SERVICE,
    *email_pages.ROUTES,
    *session_views.ROUTES,
    *pages.ROUTES,
    *v1.ROUTES,
    *v2.ROUTES,
]
# Routes without a token.
OPEN = [route for route in _ALL if route.rule is None]
# Routes for identified callers. The rule is checked first, for the caller's own project.
ROUTES = [route for route in _ALL if route.rule is not None]


class _App(Flask):
    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``func``: no view is a coroutine, which Flask would check for each request."""
        return func


def make_app(conf: ConfigOpts, runtime: Runtime, dispatcher: Dispatcher | None) -> Flask:
    """Build the WSGI application of the API.

    ``dispatcher`` is the part of a manager that polls for due events; ``/readyz`` checks that it
    works. It is None if no manager runs in this process.
    """
    app = _App("climate", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.json.sort_keys = False  # type: ignore[attr-defined]  # the default provider has it
    app.url_map.strict_slashes = True
    app.url_map.redirect_defaults = False
    app.url_map.merge_slashes = False
    app.before_request(_check_request)
    app.after_request(partial(_measure, runtime))
    app.teardown_request(lambda _: log_context.forget())
    trials = WriteTrials(runtime.store)
    served = [route for route in _ALL if conf.console.enabled or not _is_of_console(route)]
    identify = _strategy(app, conf, runtime.clock, served)
    api = Api(conf, runtime, identify, Policy(conf, runtime.clock.elapsed), dispatcher, trials)
    if conf.api.trusted_proxies:
        proxies = conf.api.trusted_proxies
        app.wsgi_app = ProxyFix(  # type: ignore[method-assign]
            app.wsgi_app, x_for=proxies, x_proto=0, x_host=0
        )
    app.wsgi_app = _with_arrival_time(app.wsgi_app, runtime.clock)  # type: ignore[method-assign]
    for method, path, view, rule, *_ in served:
        handler = _unguarded(api, view) if rule is None else _guarded(api, rule, view)
        app.add_url_rule(path, f"{method} {path}", handler, methods=[method])
    compression.install(app)
    app.after_request(_add_headers)
    rendering.register(app)
    return app


def list_rules() -> list[RuleDefault]:
    """Return the policy rules, each with the routes that require it.

    oslopolicy-sample-generator calls this function. Some rules have no routes, because they only
    extend another rule: ``leases:get_all`` extends ``leases:get``. Such a rule gets the routes of
    the rule that it extends.
    """
    routes: dict[str, list[Operation]] = {}
    for route in ROUTES:
        operation: Operation = {"method": route.method, "path": route.template}
        routes.setdefault(f"climate:{route.rule}", []).append(operation)
    return [
        DocumentedRuleDefault(
            rule.name,
            rule.check_str,
            rule.description or "",
            routes.get(rule.name) or routes[rule.name.rpartition("_")[0]],
            scope_types=rule.scope_types,
        )
        if rule.scope_types
        else rule
        for rule in RULES
    ]


def _is_of_console(route: Route) -> bool:
    return route.path.startswith("/console")


def _strategy(app: Flask, conf: ConfigOpts, clock: Clock, served: Sequence[Route]) -> auth.Identify:
    open_paths = {route.path for route in served if route.rule is None}
    identify = _by_token(app, conf, open_paths)
    if not conf.console.enabled:
        return identify
    return middleware.install(app, conf, clock, identify, open_paths)


def _by_token(app: Flask, conf: ConfigOpts, open_paths: Collection[str]) -> auth.Identify:
    if conf.api.auth_strategy == "keystone":
        return auth.guard(app, conf, open_paths)
    if conf.api.serve_unauthenticated_to_the_network:
        return auth.by_token_text
    return partial(auth.by_token_text_on_loopback, conf.host)


def _unguarded(api: Api, view: Callable[..., Answer]) -> Callable[..., Response]:
    def handle(**path: str) -> Response:
        return _response(*view(api, **path))

    return handle


def _guarded(api: Api, rule: str, view: Callable[..., Answer]) -> Callable[..., Response]:
    """Wrap a view so that these checks run before it: API version, identity, policy ``rule``."""

    def handle(**path: str) -> Response:
        if request.path.startswith("/v1"):
            microversion.check(request.headers.get(microversion.HEADER))
        caller = api.identify(request)
        log_context.identified(caller.user_id, caller.project_id, path.get("lease_id"))
        call = Call(api, caller, request.environ[ARRIVED_AT])
        call.require(rule)
        return _response(*view(call, **path))

    return handle


def _response(body: Any, status: int, headers: Mapping[str, str] | None = None) -> Response:  # noqa: ANN401 - JSON
    if isinstance(body, str):
        response = Response(body, mimetype="text/html")
    elif isinstance(body, bytes):
        response = Response(body)
    elif isinstance(body, Iterator):
        response = Response(body, mimetype="text/event-stream")
    elif body is None:
        response = Response()
    else:
        response = Response(encode_json(body), mimetype="application/json")
    response.status_code = status
    response.headers.update(headers or {})
    if body is None:
        del response.headers["Content-Type"]
    if "ETag" in response.headers:
        response.make_conditional(request)  # 304 if the client already has it
        if response.status_code == PreconditionFailed.status:
            raise PreconditionFailed("If-Match names another version of what was read")
    return response


def _with_arrival_time(wsgi_app: Any, clock: Clock) -> Callable[..., Any]:  # noqa: ANN401 - WSGI
    """Wrap the WSGI application, so that it stores the arrival time of each request.

    The time is stored before the token is checked. So a slow check does not change what ``now`` in
    the request means, or which dates in the request are past.
    """

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:  # noqa: ANN401
        environ[ARRIVED_AT], environ[_STARTED] = clock.now(), time.monotonic()
        return wsgi_app(environ, start_response)

    return app


def _check_request() -> None:
    """Assign an id to the current request, and raise an error if the request is not acceptable.

    If the built-in HTTP server has rejected the request, for instance as too large, raise the
    server's error. If the path contains text that the database cannot store, raise NotFound. If the
    query does, raise InvalidInput.
    """
    request.environ["climate.request_id"] = request_id = f"req-{new_id()}"
    log_context.begin_request(request_id, request.headers.get("X-OpenStack-Request-ID"))
    if REJECTION in request.environ:
        abort(*request.environ[REJECTION])
    if not is_storable(request.path):
        raise NotFound("The requested URL was not found on the server.")
    for name, value in request.args.items(multi=True):
        if not (is_storable(name) and is_storable(value)):
            raise InvalidInput("The query string contains a NUL or half a surrogate pair")


def _add_headers(response: Response) -> Response:
    for name, value in _SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["X-Openstack-Request-Id"] = request.environ["climate.request_id"]
    if request.url_rule is not None and request.url_rule.rule.startswith("/v1/"):
        microversion.add_headers(response)
    return response


def _measure(runtime: Runtime, response: Response) -> Response:
    """Count, time and log the current request, whose response is ``response``; return ``response``.

    GET and HEAD requests are logged at level DEBUG, others at INFO.
    """
    route = request.url_rule.rule if request.url_rule is not None else "none"
    seconds = time.monotonic() - request.environ[_STARTED]
    runtime.metrics.request(request.method, route, response.status_code, seconds)
    level = logging.DEBUG if request.method in _READ_METHODS else logging.INFO
    # The addresses of feeds, and the links in mails, are secret.
    path = route if "secret" in (request.view_args or {}) else request.path
    LOG.log(level, "%s %s: %s", request.method, path, response.status_code)
    return response
