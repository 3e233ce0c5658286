"""Hosts in network namespaces of this machine: each has its own address, ssh, processes, home, /tmp and shared memory.

They need root, and Debian's openssh-server, iproute2 and rsync. All see the same disk, which holds `Network.folder`;
each host's own folders are mounted over it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

BRIDGE, SUBNET = "fedray0", "10.213.0"
TOOLS = ("ip", "unshare", "mount", "ssh-keygen", "rsync", "/usr/sbin/sshd")
SSHD = """
Port 22
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {authorized}
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
"""
START = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o size=1g tmpfs /dev/shm
mount --bind {folder}/tmp /tmp
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/home {home}
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
hostname {name}
exec /usr/sbin/sshd -D -e -f {folder}/sshd_config
"""


def sh(*command: str | Path) -> str:
    """The standard output of a command. RuntimeError if it fails."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


class Host:
    """A host: `link` connects it to the bridge, and all its processes descend from `process`."""

    def __init__(self, name: str, address: str, folder: Path, authorized: Path) -> None:
        self.name, self.address, self.folder, self.link = name, address, folder, f"{name}-0"
        for part in ("home", "tmp"):
            (folder / part).mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host_key")
        (folder / "sshd_config").write_text(SSHD.format(address=address, folder=folder, authorized=authorized))
        users = Path("/etc/passwd").read_text().splitlines()
        home = folder.parent / "home"  # the same path on all hosts
        home.mkdir(exist_ok=True)
        mine = [f"root:x:0:0:root:{home}:/bin/bash" if user.startswith("root:") else user for user in users]
        (folder / "passwd").write_text("\n".join(mine) + "\n")
        (folder / "home" / ".bashrc").touch()
        (folder / "home" / ".profile").write_text(". ~/.bashrc\n")
        self._connect()
        with (folder / "sshd.log").open("w") as log:
            apart = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "bash", "-c"]
            command = ["ip", "netns", "exec", name, *apart, START.format(folder=folder, name=name, home=home)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _connect(self) -> None:
        sh("ip", "netns", "add", self.name)
        sh("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        sh("ip", "link", "set", self.link, "master", BRIDGE, "up")
        for command in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{self.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "default", "via", f"{SUBNET}.1"),
        ):
            sh("ip", "-n", self.name, *command)

    def answers(self, seconds: float = 20) -> None:
        """Wait until its ssh port takes connections. RuntimeError after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                socket.create_connection((self.address, 22), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{self.name} does not answer: {(self.folder / 'sshd.log').read_text()}"
                    ) from None
                time.sleep(0.1)

    def cut(self) -> None:
        sh("ip", "link", "set", self.link, "down")

    def mend(self) -> None:
        sh("ip", "link", "set", self.link, "up")

    def processes(self, word: str) -> list[str]:
        """The command lines with `word` of the host's processes, which are those in its process namespace."""
        mine = os.readlink(f"/proc/{self.process.pid}/ns/pid_for_children")
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "ns" / "pid") == mine and word in (
                    line := (path / "cmdline").read_text().replace("\0", " ")
                ):
                    found.append(line)
            except OSError:  # the process has ended
                continue
        return found

    def close(self) -> None:
        self.process.kill()  # this ends the first process of the host's namespace, and so all others
        self.process.wait()


class Network:
    """A network of hosts that accept the ssh key `key`. On exit, the hosts are ended and `folder` is removed."""

    def __init__(self, names: Sequence[str]) -> None:
        if os.geteuid() or (missing := [tool for tool in TOOLS if shutil.which(tool) is None]):
            raise SystemExit(
                f"hosts in namespaces need root and {', '.join(TOOLS)}"
                + ("" if os.geteuid() else f": {missing} missing")
            )
        self.names = names
        self.hosts: list[Host] = []

    def __enter__(self) -> Network:
        # Not below /tmp: each host mounts its own there.
        self.folder = Path(tempfile.mkdtemp(prefix="fedray-hosts-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.key = self.folder / "key"
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        try:
            sh("ip", "link", "add", BRIDGE, "type", "bridge")
            sh("ip", "addr", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
            sh("ip", "link", "set", BRIDGE, "up")
            for number, name in enumerate(self.names):
                self.hosts.append(
                    Host(name, f"{SUBNET}.{number + 10}", self.folder / name, self.key.with_suffix(".pub"))
                )
            for host in self.hosts:
                host.answers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        for command in (*(("netns", "del", name) for name in self.names), ("link", "del", BRIDGE)):
            subprocess.run(["ip", *command], capture_output=True)  # some may not exist
        shutil.rmtree(self.folder, ignore_errors=True)
