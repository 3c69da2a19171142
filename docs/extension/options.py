"""The reference of all options in climate.conf that climate defines, from oslo.config."""

from collections.abc import Iterable

from oslo_config import cfg, types

from climate.config.registry import GROUPS, SERVICE_USER
from climate.config.services import service_options
from docs.extension.markdown import code, section

# What each section is about. A section without a text has none.
_TEXTS = {
    "limits": "What projects and users may have: [limits](../operator/limits.md).",
    "enforcement": "A service of the operator that approves leases:"
    " [enforcement](../operator/limits.md#an-enforcement-service).",
    "trusts": "Leases for which climate acts as their user:"
    " [trusts](../operator/openstack.md#acting-as-the-user).",
    "provisioning": "Which hosts managers have prepared, and how early:"
    " [provisioning](../operator/provisioning.md).",
    "provisioner": "How `climate-provisioner` works.",
    "nova": "How hosts are isolated with `[physical:host] cloud` = `nova`:"
    " [isolation](../operator/openstack.md#isolation).",
    "simulated": "The simulated cloud, for demonstrations and tests.",
    SERVICE_USER: "The user with which climate calls OpenStack:"
    " [the service user](../operator/openstack.md#the-service-user). The other options are those of"
    " keystoneauth: `auth_type`, `auth_url`, `username`, `password`, `project_name`,"
    " `user_domain_name`, `project_domain_name`, or `auth_section` to share another section;"
    " `cafile`, `certfile`, `keyfile`, `insecure`; and `timeout` (default: 60 seconds).",
}
_SERVICES = (
    "Each of these sections has the options of the connection to an OpenStack service. climate"
    " retries a connection that fails three times, within three seconds. It repeats a request that"
    " only reads once, and never one that changes something."
)


def markdown() -> str:
    """Return a section for each section of climate.conf, with all of its options."""
    services = service_options()
    own = {group: [*options] for group, options in GROUPS.items()}
    parts = [_section(group, options) for group, options in own.items()]
    names = ", ".join(code(f"[{group}]") for group, _ in services)
    shared = "\n\n".join(_option("SERVICE", option) for option in services[0][1])
    return "\n".join([*parts, section(2, "Services", f"{_SERVICES} They are {names}.", shared)])


def names() -> list[str]:
    """Return the names of all options with their own section, such as ``[manager] workers``."""
    return [_name(group, option) for group, options in GROUPS.items() for option in options]


def _section(group: str, options: Iterable[cfg.Opt]) -> str:
    shown = (_option(group, option) for option in options)
    return section(2, f"[{group}]", _TEXTS.get(group, ""), *shown)


def _name(group: str, option: cfg.Opt) -> str:
    return f"[{group}] {option.name}"


def _option(group: str, option: cfg.Opt) -> str:
    """Return the description of an option as a directive that makes it a target of links."""
    lines = [f"```{{confval}} {_name(group, option)}", f":type: {_type(option)}"]
    lines += [f":default: {_default(option)}", "", option.help or ""]
    lines += _choices(option)
    if option.mutable:
        lines += ["", "SIGHUP applies a change."]
    return "\n".join([*lines, "```"])


def _type(option: cfg.Opt) -> str:
    kind = _kind(option.type)
    if isinstance(option, cfg.MultiOpt):
        return f"{kind}, several times"
    return f"{kind}, secret" if option.secret else kind


_KINDS: dict[type, str] = {
    types.Port: "port",
    types.Boolean: "true or false",
    types.HostAddress: "address",
    types.URI: "URL",
}


def _kind(type_: object) -> str:
    if isinstance(type_, types.List):
        return f"list: {_kind(type_.item_type)}, separated by commas"
    if isinstance(type_, types.Number) and type(type_) not in _KINDS:
        word = "integer" if isinstance(type_, types.Integer) else "number"
        return f"{word}{_range(type_)}"
    return _KINDS.get(type(type_), "text")


def _range(type_: types.Number) -> str:
    low, high = type_.min, type_.max
    if low is not None and high is not None:
        return f", {low} to {high}"
    return "" if low is None else f", {low} or more"


def _default(option: cfg.Opt) -> str:
    default = option.sample_default if option.sample_default is not None else option.default
    if default is None:
        return "none"
    if isinstance(default, list):
        return code(",".join(map(str, default))) if default else "empty"
    if isinstance(default, bool):
        return code(str(default).lower())
    return "empty" if default == "" else code(default)


def _choices(option: cfg.Opt) -> list[str]:
    described = getattr(option.type, "choices", None)
    if not described:
        return []
    rows = described.items() if isinstance(described, dict) else ((name, "") for name in described)
    return ["", *(f"- {code(name)}: {text}".removesuffix(": ") for name, text in rows)]
