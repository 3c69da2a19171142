"""Invalid values and unknown options of configuration files are named in plain words."""

from pathlib import Path

import pytest

from climate.config import registry
from climate.config.registry import Misconfigured
from tests.support.cases import each_case
from tests.support.process import write_config

UNKNOWN = {
    "api__thread": "[api] thread is not an option (any more), and is ignored; did you mean"
    " threads?",
    "api__workers": "[api] workers is not an option (any more), and is ignored; did you mean that"
    " of [manager]?",
    "limits__nonsense": "[limits] nonsense is not an option (any more), and is ignored",
    "DEFAULT__cleaning-tim": "[DEFAULT] cleaning_tim is not an option; did you mean cleaning_time?",
    "mangaer__workers": "there is no section [mangaer]; did you mean [manager]?",
}
# Options that libraries register later, or in sections of their own.
OF_LIBRARIES = {
    "DEFAULT__rpc_response_timeout": 60,
    "DEFAULT__log_dir": "/tmp",  # noqa: S108 - is not opened
    "keystone_authtoken__usernam": "climate",
    "nova__usernam": "climate",
    "oslo_messaging_rabbit__ssl": True,
    "api__connection-limit": 100,
}
NO_CLASS = (
    "is not a resource class of devices: use up to 54 of A-Z, 0-9 and _, and not DISK_GB,"
    " MEMORY_MB, PCPU, VCPU"
)
INVALID = {
    "api__threads": ("three", "[api] threads: 'three' is not a whole number"),
    "api__delete_wait": ("soon", "[api] delete_wait: 'soon' is not a number"),
    "api__auth_strategy": (
        "magic",
        "[api] auth_strategy: Valid values are [noauth, keystone], but found 'magic'",
    ),
    "DEFAULT__port": ("70000", "[DEFAULT] port: Should be less than or equal to 65535"),
    "nova__pci_aliases": ("gpu:CUSTOM GPU", f"[nova] pci_aliases: 'CUSTOM GPU' {NO_CLASS}"),
    "nova__device_profiles": (
        "small:FPGA, large:PGPU=0, other:FPGA",
        "[nova] device_profiles: 'PGPU=0' needs a whole number from 1 to 999999 after =",
    ),
}
PROFILES = {
    "fpga:gpu": f"'gpu' {NO_CLASS}",
    "fpga:": f"'' {NO_CLASS}",
    "fpga:VCPU=2": f"'VCPU' {NO_CLASS}",
    f"fpga:{'A' * 55}": f"'{'A' * 55}' {NO_CLASS}",
    "fpga:FPGA=1000000": "'FPGA=1000000' needs a whole number from 1 to 999999 after =",
    "fpga:FPGA PGPU=": "'PGPU=' needs a whole number from 1 to 999999 after =",
    "fpga:FPGA FPGA=2": "FPGA is listed twice: write FPGA= and the sum of both",
    "fpga:FPGA, fpga:PGPU": "fpga is listed twice",
    "fpga, gpu:PGPU": "'fpga' has no resource class: write fpga:CLASS",
}


def test_each_unknown_name_is_reported_with_the_most_similar_one(tmp_path: Path) -> None:
    path = write_config(tmp_path / "climate.conf", **dict.fromkeys(UNKNOWN, 3), **OF_LIBRARIES)
    conf = registry.new()
    conf(["--config-file", str(path)], project="climate")
    assert sorted(registry.unknown_options(conf)) == sorted(
        f"{path}: {text}" for text in UNKNOWN.values()
    )


def test_unknown_names_are_logged_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path / "climate.conf", api__thread=3)
    registry.load(registry.new(), "test", ["--config-file", str(path)])
    assert "[api] thread is not an option (any more)" in capsys.readouterr().err


def test_all_invalid_values_are_named_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {option: value for option, (value, _) in INVALID.items()}
    path = write_config(tmp_path / "climate.conf", **values)
    monkeypatch.setenv("OS_MANAGER__WORKERS", "many")
    monkeypatch.setenv("OS_PROVISIONING__HOSTS", '["==", "$provisioned", "true"]')
    with pytest.raises(Misconfigured) as raised:
        registry.load(registry.new(), "test", ["--config-file", str(path)])
    assert sorted(str(raised.value).split("; ")) == sorted(
        [
            *(f"{path} {text}" for _, text in INVALID.values()),
            "OS_MANAGER__WORKERS [manager] workers: 'many' is not a whole number",
            (
                "[provisioning] hosts contains $provisioned, and there is no option provisioned:"
                " write $$provisioned for a dollar sign"
            ),
        ]
    )


@each_case("value, reason", [*PROFILES.items()])
def test_a_mistake_in_device_profiles_is_named(tmp_path: Path, value: str, reason: str) -> None:
    path = write_config(tmp_path / "climate.conf", nova__device_profiles=value)
    with pytest.raises(Misconfigured) as raised:
        registry.load(registry.new(), "test", ["--config-file", str(path)])
    assert str(raised.value) == f"{path} [nova] device_profiles: {reason}"


def test_a_device_profile_has_one_class_or_several(tmp_path: Path) -> None:
    text = "small:FPGA, two-gpus: PGPU=2,both:FPGA  CUSTOM_GPU=3"
    path = write_config(tmp_path / "climate.conf", nova__device_profiles=text)
    conf = registry.new()
    registry.load(conf, "test", ["--config-file", str(path)])
    assert conf.nova.device_profiles == {
        "small": {"FPGA": 1},
        "two-gpus": {"PGPU": 2},
        "both": {"FPGA": 1, "CUSTOM_GPU": 3},
    }
