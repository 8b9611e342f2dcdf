"""The line to a rented machine: OpenSSH's exec channel, which every way of renting has, and a sentence if it fails."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from golf.errors import GolfError

# BatchMode: no question is ever asked. accept-new: a key that is not known yet is taken, one that has changed is not.
OPTIONS = ("BatchMode=yes", "StrictHostKeyChecking=accept-new", "ConnectTimeout=15", "ServerAliveInterval=15")
SSH_FAILED = 255  # exit status of ssh itself; any other is that of the command
ANSWER = "golf-answer "  # begins the line of an answer: a machine may greet before it
GONE = 97  # exit status of a script where the code has vanished from the machine
TAIL = 2000  # characters of an error's output that are looked at
T = TypeVar("T")


class LineError(GolfError):
    """The machine does not answer, the line dropped, or golf does not run there."""


@dataclass(frozen=True)
class Line:
    """A machine as `[user@]name[:port]`, and the ssh command with its options."""

    host: str
    ssh: str = "ssh"

    def talk(self, script: str, feed: Callable[[IO[bytes]], object], read: Callable[[IO[bytes]], T]) -> T:
        """Run a shell script there. `feed` writes its input, then `read` returns what its output means.

        Raises `LineError` if the machine does not answer, the line drops or the script fails, and what `read` raises.
        """
        found = re.fullmatch(r"(.+?)(?::(\d+))?", self.host)
        if found is None or self.host.startswith("-"):
            raise GolfError("cluster=ssh needs the machine: cluster.host=USER@ADDRESS:PORT, as its page shows it.")
        try:
            start = shlex.split(self.ssh)
        except ValueError as error:
            raise GolfError(f"cluster.ssh={self.ssh} is no command ({error}): write it as in a shell.") from error
        options = [part for option in OPTIONS for part in ("-o", option)] + (["-p", found[2]] if found[2] else [])
        command = [*start, "-T", *options, "--", found[1].strip("[]"), script]
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(command, 0, None, subprocess.PIPE, subprocess.PIPE, errors)
            except OSError as error:
                raise GolfError(
                    f"{command[0]} cannot be started ({error.strerror}): install OpenSSH's client."
                ) from error
            answer, cut = None, ""
            try:
                with process:
                    assert process.stdin and process.stdout
                    feed(process.stdin)
                    process.stdin.close()
                    answer = read(process.stdout)
            except (BrokenPipeError, tarfile.TarError, EOFError) as error:
                cut = str(error) or "the line ended early"
            finally:
                process.kill()
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-TAIL:]
        if process.returncode or answer is None:
            raise _failure(self.host, process.returncode, said, cut)
        return answer

    def ask(self, script: str, feed: Callable[[IO[bytes]], object] = lambda _: None) -> Any:
        """Return the answer of a script, the JSON of its line that begins with `ANSWER`. Raises as `talk`."""
        return self.talk(script, feed, lambda output: read_answer(output.read().splitlines()))


def read_answer(lines: Iterable[bytes]) -> Any:
    """Return the first answer among lines of output, and read no further. Raises `EOFError` without one."""
    greeting = []
    for line in lines:
        if line.startswith(ANSWER.encode()):
            return json.loads(line[len(ANSWER) :])
        greeting.append(line.decode(errors="replace").strip())
    raise EOFError(f"it said “{' '.join(greeting)[-200:]}” and ended")


def _failure(host: str, status: int, said: str, cut: str) -> GolfError:
    """Return the error for a script that ended with `status` after `said` on its error output."""
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), cut)
    if "IDENTIFICATION HAS CHANGED" in said or "Host key verification failed" in said:
        name, _, port = host.rpartition("@")[2].rpartition(":")
        known = shlex.quote(f"[{name}]:{port}" if port.isdigit() and name else host.rpartition("@")[2])
        return LineError(
            f"{host} shows another host key than before, so nothing was sent: if it is a new machine at an old "
            f"address, ssh-keygen -R {known} forgets the old key."
        )
    if "Permission denied" in said:
        return LineError(
            f"{host} does not take a key of this machine, and golf asks for no password: put your public key there "
            f"(its page, or ssh-copy-id), or name the key by cluster.ssh='ssh -i FILE' ({last})."
        )
    if status == GONE:
        return LineError(f"{host} has nothing of golf any more, as after its disk was wiped.")
    if status == SSH_FAILED or status < 0 or (cut and not status):
        return LineError(f"{host} does not answer ({last}): check the address and that the machine runs.")
    return LineError(f"{host} refused ({last or f'status {status}'}).")
