"""The program climate-status: checks whether the installation is ready for this release.

``climate-status upgrade check`` has the same exit codes as in all OpenStack services: 0 if all
checks pass, 1 if there are warnings, 2 if a program would not start or not work.
"""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from oslo_config import cfg
from oslo_config.cfg import ConfigOpts
from oslo_log import log
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code

_BROKEN_PIPE = 141  # 128 and SIGPIPE, as a shell reports it


class Upgrade(upgradecheck.UpgradeCommands):
    """The command ``climate-status upgrade check``, in the form of oslo.upgradecheck."""

    def __init__(self, conf: ConfigOpts) -> None:
        self._conf = conf

    def check(self) -> Code:
        """Run all checks and print their results; return the worst result."""
        from climate.cmd.status import checks  # noqa: PLC0415 - takes seconds, not for --help
        from climate.config import registry as config  # noqa: PLC0415 - as above

        config.register(self._conf)
        self._upgrade_checks = checks.for_config(self._conf)
        return super().check()


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the installation; return the exit code."""
    conf = ConfigOpts()
    log.register_options(conf)
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv == ["--version"]:  # oslo.upgradecheck has no such option
        sys.stdout.write(f"climate-status {version('climate')}\n")
        return 0
    try:
        code = int(upgradecheck.main(conf, "climate", Upgrade(conf), argv))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `climate-status ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return _BROKEN_PIPE
    except cfg.Error as error:
        sys.stderr.write(f"climate-status: {error}\n")
        return int(Code.FAILURE)
    return code
