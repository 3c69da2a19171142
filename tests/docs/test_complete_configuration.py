"""The complete configuration file in the operator guide is valid, and has only known options."""

import configparser
import re
from pathlib import Path

from cryptography.fernet import Fernet

from climate.config import registry

PAGE = Path(__file__).parents[2] / "docs" / "operator" / "configuration.md"
# Sections whose options libraries define.
LIBRARIES = {"keystone_authtoken", "oslo_messaging_rabbit"}
OSLO_LOG = {"use_json"}


def example() -> str:
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^```ini\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].replace("REPLACE_BY_A_FERNET_KEY", Fernet.generate_key().decode())


def test_the_complete_configuration_file_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "climate.conf"
    path.write_text(example())
    conf = registry.new()
    conf(["--config-file", str(path)], project="climate")
    registry.check_values(conf)
    assert registry.settings(conf).provisioning is not None


def test_the_complete_configuration_file_has_only_known_options() -> None:
    parser = configparser.ConfigParser(default_section="none", interpolation=None)
    parser.read_string(example())
    known = {
        (group, option.name.replace("-", "_"))
        for group, options in registry.list_opts()
        for option in options
    }
    unknown = {
        (group, name)
        for group in parser.sections()
        for name in parser[group]
        if group not in LIBRARIES and (group, name) not in known and name not in OSLO_LOG
    }
    assert unknown == set()
