"""Options explain themselves, and the sample configuration that we ship is what the code says."""

import re
import socket
from importlib import metadata
from pathlib import Path

import pytest
from oslo_config import cfg, generator

from climate import config

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "etc" / "climate" / "climate.conf.sample"
OPTIONS = [
    pytest.param(group, option, id=f"{group}.{option.dest}")
    for group, options in config.GROUPS.items()
    for option in options
]
NUMBERS = [one for one in OPTIONS if isinstance(one.values[1], cfg.IntOpt | cfg.FloatOpt)]
# Numbers that are no times; whatever else is a number must say its unit.
COUNTS = {
    "database.pool_size",
    "api.threads",
    "manager.event_max_retries",
    "manager.workers",
    "provisioning.spare",
    *(
        f"notifications.{what}"
        for what in ("followers", "subscriptions_per_project", "webhook_dead_letters")
    ),
    *(f"notifications.{what}" for what in ("webhook_max_bytes", "webhook_parallel")),
    *(
        f"limits.{scope}_{what}"
        for scope in ("project", "user")
        for what in ("leases", "hosts", "vcpus")
    ),
    "provisioning.ready_share",
    "provisioning.margin",
    "provisioner.workers",
    "provisioner.group_limit",
    "simulated.hosts",
    "simulated.seed",
    "simulated.failure_rate",
}
SECRETS = {"connection", "transport_url", "external_service_token"}
UNIT = re.compile(r"\b(seconds|minutes|hours|days)\b", re.IGNORECASE)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_says_in_a_sentence_what_it_does(group: str, option: cfg.Opt) -> None:
    assert option.help
    assert re.fullmatch(r"[A-Z].*\.", option.help)


@pytest.mark.parametrize(("group", "option"), NUMBERS)
def test_every_time_has_a_unit(group: str, option: cfg.Opt) -> None:
    is_count = f"{group}.{option.dest}" in COUNTS or isinstance(option, cfg.PortOpt)
    assert is_count != bool(UNIT.search(option.help))


def test_lists_of_times_have_a_unit() -> None:
    [leads] = [option for option in config.MANAGER if option.name == "before_start_leads"]
    assert UNIT.search(leads.help)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_passwords_are_not_logged(group: str, option: cfg.Opt) -> None:
    assert option.secret == (option.dest in SECRETS)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_the_sample_shows_every_option_with_its_default(group: str, option: cfg.Opt) -> None:
    section = SAMPLE.read_text().partition(f"\n[{group}]\n")[2] or SAMPLE.read_text()
    section = section.partition("\n[")[0]
    assert f"\n#{option.dest} =" in section
    assert option.help.split(maxsplit=1)[0] in section


def test_the_sample_sets_nothing() -> None:
    lines = SAMPLE.read_text().splitlines()
    assert [line for line in lines if line and line[0] not in "#["] == []


def test_the_defaults_in_the_sample_are_the_defaults_in_the_code(tmp_path: Path) -> None:
    path = tmp_path / "climate.conf"
    shown = re.sub(r"^#(\w+ = (?!<None>).+)$", r"\1", ours(tmp_path), flags=re.MULTILINE)
    path.write_text(shown)
    read, unset = config.new(), config.new()
    config.load(read, "test", [f"--config-file={path}"])
    config.load(unset, "test", [])
    for group, options in config.GROUPS.items():
        for option in options:
            values = [
                getattr(conf if group == "DEFAULT" else conf[group], option.dest)
                for conf in (read, unset)
            ]
            assert values[0] == values[1], option.dest


def ours(tmp_path: Path) -> str:
    """Return the part of the sample that is about our own options."""
    path = tmp_path / "ours"
    generator.main(["--namespace", "climate", "--output-file", str(path)])
    return path.read_text()


def test_the_sample_is_what_make_config_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    oslo = ("oslo.config", "oslo.log", "oslo.messaging", "oslo.policy")
    for name in (*oslo, "keystoneauth1", "keystonemiddleware"):
        if metadata.version(name) != pinned[name]:
            pytest.skip(f"{name} is not {pinned[name]}: its options may be others")
    monkeypatch.chdir(ROOT)
    path = tmp_path / "sample"
    arguments = ["--config-file", "etc/climate/config-generator.conf", "--output-file", str(path)]
    generator.main(arguments)
    assert path.read_text() == SAMPLE.read_text(), "run 'make config'"


def test_the_sample_says_nothing_about_the_machine_it_was_made_on() -> None:
    text = SAMPLE.read_text()
    host = socket.gethostname()
    assert host == "localhost" or not re.search(rf"\b{re.escape(host)}\b", text)
    assert str(ROOT) not in text
    assert not re.search(r"/(home|root|tmp|work)/", text)


def test_a_file_overrides_defaults(tmp_path: Path) -> None:
    path = tmp_path / "climate.conf"
    path.write_text("[manager]\nbefore_start_leads = 90,30\nminutes_before_end_lease = 0\n")
    conf = config.new()
    config.load(conf, "test", [f"--config-file={path}"])
    settings = config.settings(conf)
    assert settings.before_start_leads == (90, 30)
    assert settings.before_end_lead is None


def test_a_value_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "climate.conf"
    path.write_text("[simulated]\nfailure_rate = 2\n")
    with pytest.raises(cfg.ConfigFileValueError, match="failure_rate"):
        config.load(config.new(), "test", [f"--config-file={path}"])
