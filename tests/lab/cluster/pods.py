"""Rented machines for tests: Debian's sshd on 127.0.0.1, each in namespaces of its own, with another home and name."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
# A process id of a pod means nothing outside of it, and nothing in it outlives it.
NAMESPACES = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")


def why_not() -> str:
    """Return why no pod can be started here; empty if one can."""
    if SSHD is None:
        return "needs Debian's openssh-server (sshd is missing)"
    if os.geteuid() != 0 or subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        return "needs root and namespaces (unshare)"
    return ""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Pod:
    """A machine that ssh reaches. `hidden` are folders of this machine that it does not have."""

    name: str
    folder: Path
    hidden: list[Path] = field(default_factory=list)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def runs(self) -> Path:
        return self.home / "golf" / "runs"

    @property
    def host(self) -> str:
        return f"root@127.0.0.1:{self.port}"

    @property
    def ssh(self) -> str:
        key = self.folder.parent / "key"
        return f"ssh -F none -i {key} -o UserKnownHostsFile={self.folder.parent}/known_hosts"

    def up(self) -> None:
        """Start the machine, with its disk if it had one."""
        assert SSHD
        self.home.mkdir(parents=True, exist_ok=True)
        key = self.folder.parent / "key"
        for path in (key, self.folder / "host_key"):
            if not path.exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        enter = self.folder / "enter"
        # It greets, as many machines do.
        enter.write_text(f'#!/bin/sh\ncd "$HOME"\necho Welcome to {self.name}\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
        enter.chmod(0o755)
        lines = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": self.folder / "host_key",
            "AuthorizedKeysFile": f"{key}.pub",
            "StrictModes": "no",
            "PasswordAuthentication": "yes",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "yes",
            "UsePAM": "no",
            "PidFile": "none",
            "ForceCommand": enter,
            # Another home than that of the user here, whose shell would run what stands in its .bashrc.
            "SetEnv": f"HOME={self.home}",
        }
        (self.folder / "sshd_config").write_text("".join(f"{k} {v}\n" for k, v in lines.items()))
        Path("/run/sshd").mkdir(exist_ok=True)
        hide = "".join(f"mount -t tmpfs none {shlex.quote(str(path))}\n" for path in self.hidden)
        keep = f"mkdir -p {self.folder.parent}\n"
        script = f"hostname {self.name}\n{hide}{keep}exec {SSHD} -D -e -f {self.folder}/sshd_config"
        with (self.folder / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen([*NAMESPACES, "sh", "-c", script], stdout=log, stderr=log)
        until = time.monotonic() + 20
        while True:
            with socket.socket() as s:
                if not s.connect_ex(("127.0.0.1", self.port)):
                    return
            assert time.monotonic() < until and self.process.poll() is None, (self.folder / "sshd.log").read_text()
            time.sleep(0.05)

    def down(self) -> None:
        """Let the machine vanish with all that runs on it. Its disk stays."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
