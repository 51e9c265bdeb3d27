"""A battery of attacks on a sandboxed worker. Run as a script: as whom and without which steps of the containment is
its argument; it prints as JSON what came of each. One that gets through cannot hurt: the targets are its own, the mounts are private.

An attack returns what got through, or ends its process, or does not return.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from gimbal.sandbox import worker as sandboxed
from gimbal.sandbox.worker import Worker, WorkerError

ORDINARY = 64123
MEMORY_GB = 0.5


def tried(**actions) -> list[str]:
    through = []
    for name, action in actions.items():
        try:
            action()
        except (OSError, EOFError, MemoryError):
            continue
        through.append(name)
    return through


def called(number: int, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")


def reads_a_file(info) -> list[str]:
    link = Path(os.environ["TMPDIR"]) / "link"
    link.symlink_to(info["secret"])
    return tried(
        plain=lambda: Path(info["secret"]).read_text(),
        link=link.read_text,
        root=lambda: Path(f"/proc/self/root{info['secret']}").read_text(),
        others_root=lambda: Path(f"/proc/{info['trainer']}/root{info['secret']}").read_text(),
        keys=lambda: os.listdir(os.path.expanduser("~/.ssh")),
        listing=lambda: os.listdir(Path(info["secret"]).parent),
    )


def writes_a_file(info) -> list[str]:
    return tried(
        make=lambda: Path(info["open"], "made").write_text("x"),
        append=lambda: open(info["own"], "a"),
        cut=lambda: os.truncate(info["own"], 0),
        remove=lambda: os.unlink(info["own"]),
        rename=lambda: os.rename(info["own"], info["own"] + "2"),
        move=lambda: os.link(info["own"], os.environ["TMPDIR"] + "/own"),
        settings=lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        python=lambda: Path(os.__file__).open("a").close(),
    )


def reads_the_environment(info) -> list[str]:
    everything = str(dict(os.environ)) + Path("/proc/self/environ").read_text()
    through = ["own"] if "hidden words" in everything else []
    reads = {
        str(pid): Path(f"/proc/{pid}/environ").read_bytes for pid in (info["trainer"], info["dummy"], os.getppid())
    }
    return through + tried(**reads)


def opens_memory(info) -> list[str]:
    target, libc = info["dummy"], ctypes.CDLL(None, use_errno=True)

    def attach():
        if libc.ptrace(16, target, 0, 0) == -1:
            raise OSError
        libc.ptrace(17, target, 0, 0)

    def copy():
        here, there = ctypes.create_string_buffer(1), struct.pack("QQ", 8, 1)
        own = struct.pack("QQ", ctypes.addressof(here), 1)
        # That nothing lies at this address is only said to who may look.
        if libc.process_vm_readv(target, own, 1, there, 1, 0) == -1 and ctypes.get_errno() != errno.EFAULT:
            raise OSError

    return tried(
        mem=lambda: open(f"/proc/{target}/mem", "rb"), maps=lambda: Path(f"/proc/{target}/maps").read_text(), attach=attach,
        copy=copy, parent=lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
    )  # fmt: skip


def signals(info) -> list[str]:
    return tried(
        stop=lambda: os.kill(info["dummy"], signal.SIGUSR1),
        group=lambda: os.killpg(info["dummy"], signal.SIGUSR1),
        trainer=lambda: os.kill(info["trainer"], 0),
        handle=lambda: signal.pidfd_send_signal(os.pidfd_open(info["dummy"]), signal.SIGUSR1),
    )


def kills_its_keeper(info) -> list[str]:
    tried(kill=lambda: os.kill(os.getppid(), signal.SIGKILL), stop=lambda: os.kill(os.getppid(), signal.SIGSTOP))
    time.sleep(0.05)
    return []


def mounts(info) -> list[str]:
    libc = ctypes.CDLL(None, use_errno=True)

    def mount():
        if libc.mount(b"none", os.environ["TMPDIR"].encode(), b"tmpfs", ctypes.c_ulong(0), None) == -1:
            raise OSError

    def unmount():
        if libc.umount2(b"/proc", 2) == -1:
            raise OSError

    return tried(mount=mount, unmount=unmount, change=lambda: os.chroot(os.environ["TMPDIR"]))


def takes_namespaces(info) -> list[str]:
    libc = ctypes.CDLL(None, use_errno=True)

    def unshare(flag):
        if libc.unshare(flag) == -1:
            raise OSError

    def cloned():
        called(56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0)
        os._exit(1)

    return tried(
        user=lambda: unshare(0x10000000),
        mounts=lambda: unshare(0x20000),
        net=lambda: unshare(0x40000000),
        cloned=cloned,
    )


def reaches_the_kernel(info) -> list[str]:
    x86 = os.uname().machine == "x86_64"
    return tried(
        keys=lambda: called(248 if x86 else 217, b"user", b"gimbal", b"x", 1, ctypes.c_long(-2)),
        bpf=lambda: called(321 if x86 else 280, 0, 0, 0),
        uring=lambda: called(425, 1, ctypes.create_string_buffer(256)),
        memfd=lambda: called(319 if x86 else 279, b"m", 0),
        disk=lambda: open("/dev/vda", "rb"),
        memory=lambda: open("/dev/mem", "rb"),
    )


def has_privileges(info) -> list[str]:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    none = all(int(status[name], 16) == 0 for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"))
    through = [] if none and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2" else [str(status)]
    return through + tried(
        root=lambda: os.setuid(0 if os.getuid() else 1), clock=lambda: time.clock_settime(0, time.time())
    )


def reaches_the_network(info) -> list[str]:
    def tcp():
        socket.create_connection(("127.0.0.1", info["port"]), 0.5).close()

    def udp():
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", info["port"]))

    def abstract():
        socket.socket(socket.AF_UNIX).connect("\0gimbal-attacks-" + str(info["trainer"]))

    return tried(tcp=tcp, udp=udp, abstract=abstract)


def leaves_a_daemon(info) -> list[str]:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.closerange(0, 256)
            os.execv("/bin/sleep", ["sleep", info["mark"]])
        os._exit(0)
    time.sleep(60)
    return []


def leaves_a_daemon_and_returns(info) -> list[str]:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 256)
            os.execv("/bin/sleep", ["sleep", info["mark"]])
        os._exit(0)
    os.wait()
    os._exit(7)


def loops(info) -> list[str]:
    while True:
        pass


def ignores_signals(info) -> list[str]:
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(60)
    return []


def forks_without_end(info) -> list[str]:
    born = []
    try:
        for _ in range(600):
            if (pid := os.fork()) == 0:
                time.sleep(20)
                os._exit(0)
            born.append(pid)
        time.sleep(1)
    finally:
        for pid in born:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return ["600 processes"]


def takes_memory(info) -> list[str]:
    return tried(at_once=lambda: bytearray(1 << 30)) or [bytearray(1 << 30)]


def takes_memory_in_parts(info) -> list[str]:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # not to be looked into
    for _ in range(4):
        if os.fork() == 0:
            part = bytearray(b"x") * (200 << 20)
            time.sleep(20)
            os._exit(len(part) & 1)
    time.sleep(5)
    return ["800 MB"]


def fills_the_disk(info) -> list[str]:
    def one(name: str, size: int):
        with open(os.path.join(os.environ["TMPDIR"], name), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    through = tried(large=lambda: one("large", 300 << 20), output=lambda: os.posix_fallocate(1, 0, 300 << 20))
    many = tried(many=lambda: [one(str(n), 200 << 20) for n in range(4)])
    for path in Path(os.environ["TMPDIR"]).iterdir():
        path.unlink()
    return through + many


def floods(info) -> list[str]:
    os.write(1, b"x" * 10_000_000)
    sys.stderr.write("\x1b[2J" + "y" * 1_000_000)
    raise ValueError("\x1b]0;title\x07" + "z" * 1_000_000)


def takes_the_streams_away(info) -> list[str]:
    sys.stdout = sys.stderr = sys.stdin = None
    return []


def closes_the_streams(info) -> list[str]:
    sys.stdout.close()
    sys.stderr.detach()
    for number in range(3):
        os.close(number)
    return []


def closes_everything(info) -> list[str]:
    os.closerange(3, 256)
    return []


def replies() -> list[int]:
    """Descriptors of the protocol: sockets."""
    found = []
    for number in range(3, 64):
        try:
            socket.socket(fileno=os.dup(number)).close()
        except OSError:
            continue
        found.append(number)
    return found


def forged(reply: bytes) -> None:
    for number in replies():
        os.write(number, len(reply).to_bytes(4, "big") + reply)


def forges_the_next_reply(info) -> list[str]:
    threading.Timer(0.02, forged, [b'{"nonce": "%s", "value": "forged"}' % (b"0" * 32)]).start()
    return []


def begins_a_reply(info) -> list[str]:
    threading.Timer(0.02, lambda: [os.write(number, (100).to_bytes(4, "big")) for number in replies()]).start()
    return []


def forges_this_reply(info) -> list[str]:
    forged(b'{"nonce": "%s", "value": "forged"}' % (b"0" * 32))
    return []


def replies_with_nonsense(info) -> list[str]:
    forged(b"[" * 1_000_000)
    return []


def replies_without_end(info) -> list[str]:
    for number in replies():
        os.write(number, (0x7FFFFFFF).to_bytes(4, "big") + b"x" * 1000)
    return []


def replies_with_an_object(info) -> list[str]:
    class Runs:
        def __reduce__(self):
            return os.kill, (info["dummy"], signal.SIGUSR1)

    return Runs()  # type: ignore[return-value]


def crashes(info) -> list[str]:
    ctypes.string_at(0)
    return []


def dies_without_a_name(info) -> list[str]:
    os.kill(os.getpid(), 40)
    return []


def exits(info) -> list[str]:
    os._exit(3)


def raises_what_cannot_be_said(info) -> list[str]:
    class Mute(BaseException):
        def __str__(self) -> str:
            raise SystemExit

    raise Mute


def leaves_an_alarm(info) -> list[str]:
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    return []


def inherits_descriptors(info) -> list[str]:
    there = []
    for number in range(64):
        try:
            there.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return [
        place for place in there if not place.startswith(("/dev/null", "socket:", "pipe:")) and "/output" not in place
    ]


def alive(info) -> str:
    print("still here")
    return "alive"


HANGS = {"leaves_a_daemon", "loops", "ignores_signals"}
ATTACKS = [
    name for name, one in list(vars().items())
    if callable(one) and getattr(one, "__module__", "") == __name__ and name not in
    {"tried", "called", "replies", "forged", "alive"}
]  # fmt: skip


def marked(mark: str) -> list[int]:
    """Processes that an attack of this battery left: another one may run beside it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if (
                mark.encode() in path.read_bytes().split(b"\0")
                and (path.parent / "status").read_text().find("State:\tZ") < 0
            ):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def become(who: str) -> None:
    """Another user, for whom this Python can be opened: where only root can, another of its place shows it to this process
    and its children.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        return
    assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", b"", ctypes.c_ulong(16384 | 1 << 18), None) == 0
    if who == "root":
        return
    prefix = Path(sys.base_prefix)
    os.setegid(ORDINARY)
    os.seteuid(ORDINARY)
    reached = os.access(prefix, os.X_OK, effective_ids=True)
    os.seteuid(0)
    os.setegid(0)
    if not reached:
        handle = os.open(prefix, os.O_PATH)
        top = Path(*prefix.parts[:2])
        assert libc.mount(b"none", str(top).encode(), b"tmpfs", ctypes.c_ulong(0), b"mode=755") == 0
        prefix.mkdir(parents=True)
        source = f"/proc/self/fd/{handle}".encode()
        assert libc.mount(source, str(prefix).encode(), b"", ctypes.c_ulong(4096 | 16384), None) == 0
        os.close(handle)
    os.setgroups([])
    os.setresgid(ORDINARY, ORDINARY, ORDINARY)
    os.setresuid(ORDINARY, ORDINARY, ORDINARY)
    libc.prctl(4, 1, 0, 0, 0)


def main(who: str, *without: str) -> None:
    become(who)
    sandboxed.WITHOUT = without
    with tempfile.TemporaryDirectory(dir="/tmp") as place, socket.create_server(("127.0.0.1", 0)) as server:
        for name in ("secret", "own", "open"):
            Path(place, name).mkdir()
            Path(place, name, "file").write_text("hidden words")
        os.environ["TMPDIR"] = tempfile.tempdir = place
        os.environ["TOKEN"] = "hidden words"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0gimbal-attacks-" + str(os.getpid()))
        listener.listen()
        dummy = subprocess.Popen(["sleep", "600"], start_new_session=True)
        info = {
            "secret": f"{place}/secret/file", "own": f"{place}/own/file", "open": f"{place}/open", "dummy": dummy.pid,
            "trainer": os.getpid(), "port": server.getsockname()[1],
            "mark": f"98765.{os.getpid()}",  # an argument of sleep(1) by which a process is found
        }  # fmt: skip
        table = {name: globals()[name] for name in [*ATTACKS, "alive"]}
        found = attack(Worker(
            "w", lambda: (lambda name, info: table[name](info), []), timeout=30.0, memory_gb=MEMORY_GB, network=False,
            reads=(f"{place}/own",),
        ), info)  # fmt: skip
        found["intact"] = {
            "dummy": dummy.poll() is None,
            "files": sorted(str(path.relative_to(place)) for path in Path(place).rglob("*")) == [
                "open", "open/file", "own", "own/file", "secret", "secret/file"],
            "words": all(path.read_text() == "hidden words" for path in Path(place).rglob("file")),
        }  # fmt: skip
        dummy.kill()
        dummy.wait()
    print(json.dumps(found))


def attack(worker: Worker, info) -> dict:
    found = {}
    assert worker.needs == []
    found["lacking"] = worker.lacking
    for name in ATTACKS:
        worker.timeout = 0.4 if name in HANGS else 30.0
        said, through = "", []
        try:
            through = worker(name, info)
        except WorkerError as error:
            said = str(error)
        # What comes a little later comes before the next call: on a busy machine a timer of 0.02 s is late.
        time.sleep(0.5 if name in ("forges_the_next_reply", "begins_a_reply") else 0.05)
        after = []
        while not after or after[-1] != "alive":
            try:
                after.append(worker("alive", info))
            except WorkerError as error:
                after.append(str(error))
            if len(after) > 2:
                break
        found[name] = {"through": through, "said": said, "after": after, "left": marked(info["mark"])}
    worker.close()
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
