"""Cleanup that also runs if the process that runs the tests is killed."""

import subprocess


class Will:
    """A shell script that runs once this process has ended, unless the process revokes it."""

    def __init__(self, script: str, *arguments: str) -> None:
        # This process never writes to the pipe, and its children do not inherit it. So the script
        # reads the end of file when this process ends.
        command = ["/bin/sh", "-c", f"read -r nothing; {script}", "will", *arguments]
        self._executor = subprocess.Popen(
            command, stdin=subprocess.PIPE, cwd="/", start_new_session=True
        )

    def revoke(self) -> None:
        """Cancel the script; revoking it again has no effect."""
        self._executor.kill()
        self._executor.communicate()
