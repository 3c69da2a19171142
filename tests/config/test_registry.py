"""Options describe themselves, and the sample configuration matches the code."""

import re
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from oslo_config import cfg, generator

from climate.config import registry as config_registry

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "etc" / "climate" / "climate.conf.sample"
# Numbers that are not times; every other number must state its unit.
COUNTS = {
    "database.pool_size",
    "api.threads",
    "api.trusted_proxies",
    "manager.event_max_retries",
    "manager.workers",
    "offers.per_project",
    "cleaning.margin",
    "cleaning.ready_share",
    "provisioning.spare",
    "wait_list.promises",
    *(
        f"notifications.{name}"
        for name in (
            "followers",
            "feeds_per_project",
            "subscriptions_per_project",
            "webhook_dead_letters",
        )
    ),
    *(f"notifications.{name}" for name in ("webhook_max_bytes", "webhook_parallel")),
    *(
        f"email.{name}"
        for name in (
            "daily_hour",
            "subscriptions_per_project",
            "confirmations_per_address",
            "confirmations_per_project",
        )
    ),
    *(
        f"limits.{scope}_{name}"
        for scope in ("project", "user")
        for name in ("leases", "hosts", "vcpus", "gigabytes", "floatingips", "networks")
    ),
    "api.connection_limit",
    "provisioning.ready_share",
    "provisioning.margin",
    "creation.ready_share",
    "creation.margin",
    "provisioner.workers",
    "provisioner.group_limit",
    "simulated.hosts",
    "simulated.seed",
    "simulated.failure_rate",
}
SECRETS = {
    "connection",
    "transport_url",
    "notification_transport_url",
    "external_service_token",
    "webhook_secret_keys",
    "password",
}
UNIT = re.compile(r"\b(seconds|minutes|hours|days)\b", re.IGNORECASE)


def options() -> Iterator[tuple[str, cfg.Opt]]:
    """Yield each option with its full name."""
    for group, group_options in config_registry.GROUPS.items():
        for option in group_options:
            yield f"{group}.{option.dest}", option


def test_every_option_has_a_help_sentence() -> None:
    assert [
        name for name, option in options() if not re.fullmatch(r"[A-Z].*\.", option.help or "")
    ] == []


def test_every_time_states_its_unit_and_no_count_does() -> None:
    wrong = []
    for name, option in options():
        assert option.help is not None, name
        is_number = isinstance(option, cfg.IntOpt | cfg.FloatOpt)
        is_count = name in COUNTS or isinstance(option, cfg.PortOpt)
        is_time = name == "manager.before_start_leads" or (is_number and not is_count)
        if (is_number or is_time) and is_time != bool(UNIT.search(option.help)):
            wrong.append(name)
    assert wrong == []


def test_exactly_the_passwords_are_hidden_from_the_log() -> None:
    assert [name for name, option in options() if option.secret != (option.dest in SECRETS)] == []


def test_the_sample_shows_every_option_with_its_help() -> None:
    sections = dict(re.findall(r"(?ms)^\[([\w:]+)\]\n(.*?)(?=^\[|\Z)", SAMPLE.read_text()))
    missing = []
    for name, option in options():
        assert option.help is not None, name
        section = sections[name.rpartition(".")[0]]
        if f"\n#{option.dest} =" not in section or option.help.split()[0] not in section:
            missing.append(name)
    assert missing == []


def test_the_sample_sets_nothing() -> None:
    lines = SAMPLE.read_text().splitlines()
    assert [line for line in lines if line and line[0] not in "#["] == []


def test_the_defaults_in_the_sample_are_the_defaults_in_the_code(tmp_path: Path) -> None:
    sample, path = tmp_path / "sample", tmp_path / "climate.conf"
    generator.main(["--namespace", "climate", "--output-file", str(sample)])
    path.write_text(
        re.sub(r"^#(\w+ = (?!<None>).+)$", r"\1", sample.read_text(), flags=re.MULTILINE)
    )
    configured, defaults = config_registry.new(), config_registry.new()
    config_registry.load(configured, "test", [f"--config-file={path}"])
    config_registry.load(defaults, "test", [])
    differing = [
        name for name, _ in options() if _value(configured, name) != _value(defaults, name)
    ]
    assert differing == []


def _value(conf: cfg.ConfigOpts, name: str) -> object:
    group, _, option = name.rpartition(".")
    return getattr(conf if group == "DEFAULT" else conf[group], option)


# The generator imports oslo.messaging, which loads eventlet.
@pytest.mark.filterwarnings(r"ignore:\s*.*eventlet")
def test_the_sample_is_what_make_config_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    oslo = ("oslo.config", "oslo.log", "oslo.messaging", "oslo.policy")
    # These libraries add options of their own to the sample, which differ between their versions.
    for name in (*oslo, "keystoneauth1", "keystonemiddleware"):
        if metadata.version(name) != pinned[name]:
            pytest.skip(f"{name} is not {pinned[name]}: its options may differ")
    monkeypatch.chdir(ROOT)
    path = tmp_path / "sample"
    arguments = ["--config-file", "etc/climate/config-generator.conf", "--output-file", str(path)]
    generator.main(arguments)
    assert path.read_text() == SAMPLE.read_text(), "run 'make config'"


def test_the_sample_contains_no_trace_of_the_machine_that_wrote_it() -> None:
    text = SAMPLE.read_text()
    host = socket.gethostname()
    assert host == "localhost" or not re.search(rf"\b{re.escape(host)}\b", text)
    assert str(ROOT) not in text
    assert not re.search(r"/(home|root|tmp|work)/", text)


def test_a_configuration_file_overrides_defaults(tmp_path: Path) -> None:
    path = tmp_path / "climate.conf"
    path.write_text("[manager]\nbefore_start_leads = 90,30\nminutes_before_end_lease = 0\n")
    conf = config_registry.new()
    config_registry.load(conf, "test", [f"--config-file={path}"])
    settings = config_registry.settings(conf)
    assert settings.before_start_leads == (90, 30)
    assert settings.before_end_lead is None
