"""Prometheus accepts the alert rules, the dashboard's expressions and its configuration."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy import monitoring
from tests.support import servers

TESTS = Path(__file__).parents[1] / "deploy" / "alerts_test.yaml"


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        servers.absent("promtool", "install the Debian package prometheus")
    return found


def run(*command: object) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_not_before(promtool: str) -> None:
    run(promtool, "check", "rules", monitoring.ALERTS)
    run(promtool, "test", "rules", TESTS)


def test_the_expressions_of_the_dashboard_are_valid(promtool: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression, "labels": {"title": title}}
        for number, (title, expression) in enumerate(monitoring.panels())
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    run(promtool, "check", "rules", path)


def test_the_configuration_is_valid(promtool: str) -> None:
    run(promtool, "check", "config", monitoring.FOLDER / "prometheus.yaml")
