"""What is left to be done when whoever runs the tests was killed, and cannot do it any more."""

import subprocess


class Will:
    """A shell script that runs once this process is gone, unless it is revoked before."""

    def __init__(self, script: str, *arguments: str) -> None:
        # Nobody writes to its input, and no child of ours has a copy of our end: it closes with us.
        command = ["/bin/sh", "-c", f"read -r nothing; {script}", "will", *arguments]
        self._executor = subprocess.Popen(
            command, stdin=subprocess.PIPE, cwd="/", start_new_session=True
        )

    def revoke(self) -> None:
        """Have nothing done; fine if it was revoked before."""
        self._executor.kill()
        self._executor.communicate()
