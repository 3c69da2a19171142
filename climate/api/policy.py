"""Authorization: oslo.policy rules with Blazar's defaults, overridable in policy.yaml.

All rules have the scope of a project: a token for a domain or for the system satisfies none.
"""

from collections.abc import Mapping

from oslo_config.cfg import ConfigOpts
from oslo_policy import policy

from climate.api.auth import Caller
from climate.config.registry import Misconfigured
from climate.core.errors import Forbidden

_READER = "rule:project_reader_or_admin"
_MEMBER = "rule:project_member_or_admin"
_ADMIN = "rule:admin"
_SUBSCRIPTION = "/v2/subscriptions/{subscription_id}"
_PROVISIONER = "rule:provisioner"

_ROLES = [
    policy.RuleDefault("admin", "role:admin", "Operators of the service."),
    policy.RuleDefault(
        "provisioner", "rule:admin", "Provisioners, which prepare hosts for leases."
    ),
    policy.RuleDefault(
        "project_member_or_admin",
        "rule:admin or (role:member and project_id:%(project_id)s)",
        "Callers who may change the objects of their project.",
    ),
    policy.RuleDefault(
        "project_reader_or_admin",
        "rule:admin or (role:reader and project_id:%(project_id)s)"
        " or (role:member and project_id:%(project_id)s)",
        "Callers who may read the objects of their project.",
    ),
]
# rule, default, method and path (of v1 if the route exists there, else of v2), what it allows
_TABLE = [
    ("leases:get", _READER, "GET", "/v1/leases", "Read leases."),
    ("leases:get_all", _ADMIN, "GET", "/v1/leases", "Read the leases of all projects."),
    ("leases:post", _MEMBER, "POST", "/v1/leases", "Create a lease."),
    ("leases:put", _MEMBER, "PUT", "/v1/leases/{lease_id}", "Change a lease."),
    ("leases:delete", _MEMBER, "DELETE", "/v1/leases/{lease_id}", "Delete a lease."),
    ("plugins:get", _READER, "GET", "/v1/plugins", "List the resource types."),
    ("oshosts:get", _ADMIN, "GET", "/v1/os-hosts", "Read hosts."),
    ("oshosts:post", _ADMIN, "POST", "/v1/os-hosts", "Make a host reservable."),
    ("oshosts:put", _ADMIN, "PUT", "/v1/os-hosts/{host_id}", "Change a host's capabilities."),
    ("oshosts:delete", _ADMIN, "DELETE", "/v1/os-hosts/{host_id}", "Remove a host."),
    (
        "oshosts:get_allocations",
        _ADMIN,
        "GET",
        "/v1/os-hosts/allocations",
        "Read the allocations of hosts.",
    ),
    (
        "oshosts:get_resource_properties",
        _ADMIN,
        "GET",
        "/v1/os-hosts/properties",
        "Read the capabilities of hosts.",
    ),
    (
        "oshosts:update_resource_properties",
        _ADMIN,
        "PATCH",
        "/v1/os-hosts/properties/{name}",
        "Hide or show a capability.",
    ),
    ("floatingips:get", _READER, "GET", "/v1/floatingips", "Read addresses."),
    ("floatingips:post", _ADMIN, "POST", "/v1/floatingips", "Make an address reservable."),
    (
        "floatingips:delete",
        _ADMIN,
        "DELETE",
        "/v1/floatingips/{floatingip_id}",
        "Remove an address.",
    ),
    ("networks:get", _ADMIN, "GET", "/v1/networks", "Read segments."),
    ("networks:post", _ADMIN, "POST", "/v1/networks", "Make a segment reservable."),
    ("networks:delete", _ADMIN, "DELETE", "/v1/networks/{network_id}", "Remove a segment."),
    ("resources:get", _READER, "GET", "/v2/resources", "Read resources."),
    (
        "resources:get_private",
        _ADMIN,
        "GET",
        "/v2/resources",
        "Read private properties of resources.",
    ),
    ("resources:post", _ADMIN, "POST", "/v2/resources", "Make a resource reservable."),
    (
        "resources:delete",
        _ADMIN,
        "DELETE",
        "/v2/resources/{resource_id}",
        "Remove a resource.",
    ),
    ("availability:get", _READER, "GET", "/v2/availability", "Read and search the free capacity."),
    ("limits:get", _READER, "GET", "/v2/limits", "Read your limits."),
    (
        "notifications:get",
        _READER,
        "GET",
        "/v2/notifications",
        "Read the notifications of your project.",
    ),
    (
        "notifications:get_all",
        _ADMIN,
        "GET",
        "/v2/notifications",
        "Read the notifications of all projects.",
    ),
    (
        "subscriptions:get",
        _MEMBER,
        "GET",
        "/v2/subscriptions",
        "Read the subscriptions of your project.",
    ),
    (
        "subscriptions:get_all",
        _ADMIN,
        "GET",
        "/v2/subscriptions",
        "Read the subscriptions of all projects.",
    ),
    ("subscriptions:post", _MEMBER, "POST", "/v2/subscriptions", "Create a subscription."),
    ("subscriptions:put", _MEMBER, "PATCH", _SUBSCRIPTION, "Change a subscription."),
    ("subscriptions:delete", _MEMBER, "DELETE", _SUBSCRIPTION, "Delete a subscription."),
    ("preparations:get", _PROVISIONER, "GET", "/v2/preparations", "Read preparations."),
    (
        "preparations:report",
        _PROVISIONER,
        "POST",
        "/v2/preparations/{preparation_id}/report",
        "Report the progress of a preparation.",
    ),
    ("shutdowns:get", _PROVISIONER, "GET", "/v2/shutdowns", "Read shutdowns."),
    (
        "shutdowns:report",
        _PROVISIONER,
        "POST",
        "/v2/shutdowns/{shutdown_id}/report",
        "Report the progress of a shutdown.",
    ),
    (
        "readiness:get",
        _PROVISIONER,
        "GET",
        "/v2/readiness",
        "Read the readiness of hosts, and statistics.",
    ),
    (
        "readiness:put",
        _ADMIN,
        "PATCH",
        "/v2/resources/{resource_id}/readiness",
        "Quarantine a host, or end its quarantine.",
    ),
]

# Routes under the same rule: an operator who forbids an action in v1 forbids it in v2, too.
_OTHER_ROUTES = {
    "leases:get": [
        ("GET", "/v2/leases"),
        ("GET", "/v2/leases/{lease_id}"),
        ("GET", "/v2/leases/{lease_id}/readiness"),
    ],
    "leases:get_all": [("GET", "/v2/leases?all_projects=true")],
    "leases:post": [("POST", "/v2/leases")],
    "leases:put": [("PATCH", "/v2/leases/{lease_id}")],
    "leases:delete": [("DELETE", "/v2/leases/{lease_id}")],
    "resources:get": [("GET", "/v2/resources/{resource_id}")],
    "availability:get": [("POST", "/v2/availability/search")],
    "notifications:get": [("GET", "/v2/notifications/stream")],
    "subscriptions:get": [
        ("GET", _SUBSCRIPTION),
        ("GET", f"{_SUBSCRIPTION}/dead-letters"),
    ],
    "subscriptions:put": [("POST", f"{_SUBSCRIPTION}/redeliver")],
    "preparations:get": [("GET", "/v2/preparations/{preparation_id}")],
    "shutdowns:get": [("GET", "/v2/shutdowns/{shutdown_id}")],
    "readiness:get": [
        ("GET", "/v2/readiness/energy"),
        ("GET", "/v2/resources/{resource_id}/readiness"),
    ],
}


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules with their defaults, also for oslopolicy-sample-generator."""
    return _ROLES + [
        policy.DocumentedRuleDefault(
            f"climate:{name}",
            check,
            text,
            [
                {"method": method, "path": path}
                for method, path in [(method, path), *_OTHER_ROUTES.get(name, [])]
            ],
            scope_types=["project"],
        )
        for name, check, method, path, text in _TABLE
    ]


class Policy:
    """The policy rules: the defaults, overridden by the policy file."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Read the policy file that ``conf`` names, if it exists; raises Misconfigured."""
        self._enforcer = policy.Enforcer(conf)
        self._enforcer.register_defaults(list_rules())
        try:
            self._enforcer.load_rules()
        except Exception as error:  # malformed YAML, a rule that does not parse, no permission
            raise Misconfigured(f"the policy file cannot be used: {error}") from error

    def allows(self, caller: Caller, rule: str, project_id: str) -> bool:
        """Return whether ``rule`` allows ``caller`` to act on objects of ``project_id``."""
        target: Mapping[str, str] = {"project_id": project_id}
        return bool(self._enforcer.authorize(f"climate:{rule}", target, caller.credentials()))

    def require(self, caller: Caller, rule: str, project_id: str) -> None:
        """Raise Forbidden unless ``allows`` returns True for the same arguments."""
        if not self.allows(caller, rule, project_id):
            raise Forbidden(f"Policy doesn't allow {rule} to be performed.")
