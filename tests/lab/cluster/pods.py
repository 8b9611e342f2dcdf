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
    address: str = "127.0.0.1"  # any other is that of a network of its own, with this machine at the number before it
    rate: str = ""  # of its network, both ways
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def runs(self) -> Path:
        return self.home / "golf" / "runs"

    @property
    def host(self) -> str:
        return f"root@{self.address}:{self.port}"

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
            "ListenAddress": self.address,
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
            command = [*self._network(), *NAMESPACES, "sh", "-c", script]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 600
        while True:
            with socket.socket() as s:
                if not s.connect_ex((self.address, self.port)):
                    return
            assert time.monotonic() < until and self.process.poll() is None, (self.folder / "sshd.log").read_text()
            time.sleep(0.05)

    def _network(self) -> list[str]:
        """Make the network of the machine and return the words that start a command in it."""
        if self.address == "127.0.0.1":
            return []
        start, _, last = self.address.rpartition(".")
        inside, here, there = ("ip", "netns", "exec", self.name), f"{self.name}-0", f"{self.name}-1"
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        commands = [
            ["ip", "netns", "add", self.name],
            ["ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", self.name],
            ["ip", "addr", "add", f"{start}.{int(last) - 1}/30", "dev", here],
            ["ip", "link", "set", here, "up"],
            [*inside, "ip", "addr", "add", f"{self.address}/30", "dev", there],
            [*inside, "ip", "link", "set", there, "up"],
            [*inside, "ip", "link", "set", "lo", "up"],
        ]
        slow = ["root", "tbf", "rate", self.rate, "burst", "16kbit", "latency", "1s"]
        ends = [["tc", "qdisc", "add", "dev", here, *slow], [*inside, "tc", "qdisc", "add", "dev", there, *slow]]
        for command in [*commands, *(ends if self.rate else [])]:
            subprocess.run(command, check=True)
        return list(inside)

    def down(self) -> None:
        """Let the machine vanish with all that runs on it. Its disk stays."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
