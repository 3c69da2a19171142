"""Simulated BMCs: OpenIPMI's simulator and the Redfish emulator of sushy-tools."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import requests

from tests.support import servers
from tests.support.process import eventually, free_port

USER, PASSWORD = "admin", "s3cret-of-the-bmc"
SYSTEM = "11111111-2222-3333-4444-555555555555"

# ipmi_sim asks it: DIRECTORY get|set power|boot|shutdown [VALUE]. A deaf system does not shut down.
# What the program "machine" in there does when its power becomes 0 or 1 is up to who put it there.
_CHASSIS = """#!/bin/sh
[ -f "$1/delay" ] && sleep "$(cat "$1/delay")"
echo "$2 $3 $4" >> "$1/log"
case "$2 $3" in
  "get power") echo "power:$(cat "$1/power")" ;;
  "get boot") echo "boot:$(cat "$1/boot")" ;;
  "set power")
    [ -f "$1/stuck" ] && exit 0
    [ "$(cat "$1/power")" = "$4" ] && exit 0
    echo "switched $4" >> "$1/log"
    echo "$4" > "$1/power"
    [ -x "$1/machine" ] && "$1/machine" "$4" ;;
  "set shutdown")
    [ -f "$1/deaf" ] && exit 0
    echo "switched 0" >> "$1/log"
    echo 0 > "$1/power"
    [ -x "$1/machine" ] && "$1/machine" 0 ;;
  "set boot") echo "$4" > "$1/boot" ;;
esac
exit 0
"""
_EMULATED = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
"""


@dataclass(frozen=True)
class Bmc:
    """A running BMC; files in ``home`` record the chassis' commands."""

    process: "subprocess.Popen[bytes]"
    home: Path
    port: int

    def begin_with_power(self) -> None:
        """Switch the chassis on, without a command."""
        (self.home / "power").write_text("1\n")

    def ignore_shutdown(self) -> None:
        """Let the system ignore a request to shut down."""
        (self.home / "deaf").touch()

    def hang(self) -> None:
        """Answer nothing any more."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def disconnect(self) -> None:
        """Cut all connections."""
        self.process.kill()

    @property
    def log(self) -> list[str]:
        """The commands to the chassis: ``set power 1``."""
        path = self.home / "log"
        return [line.strip() for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def switched(self) -> list[str]:
        """Each change of the power state; a repeated command changes nothing."""
        return [line.removeprefix("switched ") for line in self.log if line.startswith("switched")]

    def sets(self, what: str) -> list[str]:
        """Return the values of the commands for ``power`` or ``boot``."""
        wanted = f"set {what} "
        return [line.removeprefix(wanted) for line in self.log if line.startswith(wanted)]


@contextmanager
def ipmi(home: Path) -> Iterator[Bmc]:
    """Run an IPMI controller of a machine that is off."""
    if shutil.which("ipmi_sim") is None or shutil.which("ipmitool") is None:
        servers.absent("ipmi", "the Debian packages openipmi and ipmitool are not installed")
    port = free_port()
    chassis = _prepare(home, port)
    words = ["ipmi_sim", "-n", "-p", "-c", "lan.conf", "-f", "sim.emu", "-s", "state"]
    with _running(words, home) as process:
        yield Bmc(process, chassis, port)


def _prepare(home: Path, port: int) -> Path:
    (home / "state").mkdir(parents=True)
    program = home / "chassis.sh"
    program.write_text(_CHASSIS)
    program.chmod(0o755)
    (home / "power").write_text("0\n")
    (home / "boot").write_text("default\n")
    (home / "sim.emu").write_text(_EMULATED)
    auths = "\n".join(
        f"    allowed_auths_{level} none md2 md5 straight"
        for level in ("callback", "user", "operator", "admin")
    )
    (home / "lan.conf").write_text(
        f'name "bmc"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n'
        f"    priv_limit admin\n{auths}\n    guid {0:032x}\n  endlan\n"
        f'  chassis_control "{program} {home}"\n'
        f'  user 2 true "{USER}" "{PASSWORD}" admin 10 none md2 md5 straight\n'
    )
    return home


@contextmanager
def redfish(home: Path) -> Iterator[Bmc]:
    """Run a Redfish controller behind TLS; its certificate is ``cert.pem`` in its home."""
    home.mkdir(parents=True)
    port = free_port()
    _make_certificate(home)
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(rounds=4)).decode()
    (home / "users").write_text(f"{USER}:{hashed}\n")
    system = {"uuid": SYSTEM, "name": "machine", "power_state": "Off", "nics": []}
    options = {
        "SUSHY_EMULATOR_LISTEN_IP": "127.0.0.1",
        "SUSHY_EMULATOR_LISTEN_PORT": port,
        "SUSHY_EMULATOR_SSL_CERT": str(home / "cert.pem"),
        "SUSHY_EMULATOR_SSL_KEY": str(home / "key.pem"),
        "SUSHY_EMULATOR_AUTH_FILE": str(home / "users"),
        "SUSHY_EMULATOR_STATE_DIR": str(home),
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FAKE_SYSTEMS": [system],
    }
    lines = [f"{name} = {value!r}" for name, value in options.items()]
    (home / "emulator.conf").write_text("\n".join(lines) + "\n")
    program = Path(sys.executable).parent / "sushy-emulator"
    with _running([str(program), "--fake", "--config", "emulator.conf"], home) as process:
        eventually(lambda: _answers(home, port), "the Redfish emulator answers")
        yield Bmc(process, home, port)


def _make_certificate(home: Path) -> None:
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    if shutil.which("openssl") is None:
        servers.absent("redfish", "the program openssl is not installed")
    subprocess.run([*words.split(), *names], cwd=home, check=True, capture_output=True)


def _answers(home: Path, port: int) -> bool:
    try:
        found = requests.get(
            f"https://localhost:{port}/redfish/v1/", verify=str(home / "cert.pem"), timeout=2
        )
    except requests.ConnectionError:
        return False
    return found.ok


@contextmanager
def _running(words: list[str], home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program in its own session: otherwise a stopped program would get SIGHUP."""
    with (home / "output").open("wb") as output:
        process = subprocess.Popen(
            words,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
