"""A battery of attacks in programs that a sandbox runs. ``main``: as whom, in which rung, and without which steps of the containment;
it becomes that for good, and returns what came of each. One that gets through cannot hurt: the targets are its own.

An attack is the source of a function, run in the sandbox as a program. It prints what got through, or is ended.
"""

from __future__ import annotations

import inspect
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import image
from attacks import become, marked

from gimbal.sandbox import worker as sandboxed
from gimbal.sandbox.container import Container
from gimbal.sandbox.live import OverLimit, SandboxError
from gimbal.sandbox.processes import Bubblewrap, Landlock

# ruff: noqa: F821, SIM115 - the attacks find these names in the program that they are put into
PRELUDE = """
import ctypes, errno, fcntl, json, os, resource, signal, socket, struct, sys, threading, time
from pathlib import Path
libc = ctypes.CDLL(None, use_errno=True)
info = {info!r}

def tried(**actions):
    through = []
    for name, action in actions.items():
        try:
            action()
        except (OSError, EOFError, MemoryError, ValueError):
            continue
        through.append(name)
    return through

def called(name, *arguments):
    if libc[name](*arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")

def number(x86, arm, *arguments):
    called("syscall", ctypes.c_long(x86 if os.uname().machine == "x86_64" else arm), *arguments)

{source}
for one in {name}() or ():
    print("through", one)
"""


def reads_a_file():
    secret = info["secret"]
    os.symlink(secret, "link")
    return tried(
        plain=lambda: open(secret).read(),
        link=lambda: open("link").read(),
        root=lambda: open(f"/proc/self/root{secret}").read(),
        others_root=lambda: open(f"/proc/{info['trainer']}/root{secret}").read(),
        own_place=lambda: open(f"/proc/{info['trainer']}/cwd/answers").read(),
        keys=lambda: os.listdir(os.path.expanduser(f"{info['home']}/.ssh")),
        listing=lambda: os.listdir(os.path.dirname(secret)),
        shadow=lambda: open("/etc/shadow").read(),
    )


def reads_the_run():
    return tried(
        answers=lambda: open(info["answers"]).read(), place=lambda: os.listdir(os.path.dirname(info["answers"]))
    )


def writes_a_file():
    own = info["own"]

    def changed():
        os.chmod(own, 0o777)
        if os.stat(own).st_mode & 0o777 != 0o777:
            raise OSError

    return tried(
        make=lambda: Path(os.path.dirname(own), "made").write_text("x"),
        append=lambda: open(own, "a"),
        cut=lambda: os.truncate(own, 0),
        remove=lambda: os.unlink(own),
        rename=lambda: os.rename(own, own + "2"),
        hard_link=lambda: os.link(own, "own"),
        mode=changed,
        settings=lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
        python=lambda: open(os.__file__, "a").close(),
    )


def links_out():
    os.symlink(info["secret"], "secret")
    os.symlink(info["own"], "own")
    os.symlink("/", "all")
    os.symlink("round", "round")
    os.mkfifo("pipe")


def reads_the_environment():
    everything = str(dict(os.environ)) + open("/proc/self/environ").read()
    places = {str(pid): open for pid in (info["trainer"], info["dummy"], os.getppid())}
    through = ["own"] if "hidden words" in everything else []
    return through + tried(**{pid: (lambda pid=pid: open(f"/proc/{pid}/environ", "rb").read()) for pid in places})


def sees_other_processes():
    return [str(pid) for pid in (info["trainer"], info["dummy"]) if os.path.exists(f"/proc/{pid}/status")
            and "gimbal" in open(f"/proc/{pid}/cmdline").read()] if info["rooted"] else tried(
        line=lambda: open(f"/proc/{info['dummy']}/cmdline").read(), all=lambda: os.listdir("/proc"))  # fmt: skip


def opens_memory():
    def copy(target):
        here, there = ctypes.create_string_buffer(1), struct.pack("QQ", 8, 1)
        own = struct.pack("QQ", ctypes.addressof(here), 1)
        # That nothing lies at this address is only said to who may look.
        if libc.process_vm_readv(target, own, 1, there, 1, 0) == -1 and ctypes.get_errno() != errno.EFAULT:
            raise OSError

    return tried(
        mem=lambda: open(f"/proc/{info['dummy']}/mem", "rb"),
        maps=lambda: open(f"/proc/{info['dummy']}/maps").read(),
        copy=lambda: copy(info["dummy"]),
        server=lambda: open(f"/proc/{os.getppid()}/mem", "rb"),
        server_maps=lambda: open(f"/proc/{os.getppid()}/maps").read(),
        server_copy=lambda: copy(os.getppid()),
        server_files=lambda: os.listdir(f"/proc/{os.getppid()}/fd"),
    )


def traces():
    def attach(pid):
        called("ptrace", 16, pid, 0, 0)
        libc.ptrace(17, pid, 0, 0)

    return tried(dummy=lambda: attach(info["dummy"]), server=lambda: attach(os.getppid()))


def signals():
    return tried(
        stop=lambda: os.kill(info["dummy"], signal.SIGUSR1),
        group=lambda: os.killpg(info["dummy"], signal.SIGUSR1),
        trainer=lambda: os.kill(info["trainer"], 0),
        handle=lambda: signal.pidfd_send_signal(os.pidfd_open(info["dummy"]), signal.SIGUSR1),
    )


def signals_its_server():
    return tried(
        kill=lambda: os.kill(os.getppid(), signal.SIGKILL),
        stop=lambda: os.kill(os.getppid(), signal.SIGSTOP),
        first=lambda: os.kill(1, signal.SIGKILL) if info["rooted"] else os.kill(info["trainer"], 0),
    )


def signals_everybody():
    tried(all=lambda: os.kill(-1, signal.SIGUSR1))


def reaches_the_network():
    def udp():
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", info["port"]))

    return tried(
        tcp=lambda: socket.create_connection(("127.0.0.1", info["port"]), 0.5).close(),
        udp=udp,
        abstract=lambda: socket.socket(socket.AF_UNIX).connect("\0gimbal-programs-" + str(info["trainer"])),
        listen=lambda: socket.create_server(("127.0.0.1", 0)),
        raw=lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
        packets=lambda: socket.socket(17, socket.SOCK_RAW),
        netlink=lambda: socket.socket(16, socket.SOCK_RAW),
    )


def mounts():
    return tried(
        mount=lambda: called("mount", b"none", b".", b"tmpfs", ctypes.c_ulong(0), None),
        unmount=lambda: called("umount2", b"/proc", 2),
        root=lambda: os.chroot("."),
    )


def takes_namespaces():
    return tried(
        user=lambda: called("unshare", 0x10000000),
        mounts=lambda: called("unshare", 0x20000),
        net=lambda: called("unshare", 0x40000000),
        joins=lambda: called("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    )


def reaches_the_kernel():
    return tried(
        keys=lambda: number(248, 217, b"user", b"gimbal", b"x", 1, ctypes.c_long(-2)),
        bpf=lambda: number(321, 280, 0, 0, 0),
        uring=lambda: number(425, 425, 1, ctypes.create_string_buffer(256)),
        memfd=lambda: number(319, 279, b"m", 0),
        watch=lambda: number(298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0),
        disk=lambda: open("/dev/vda", "rb"),
        memory=lambda: open("/dev/mem", "rb"),
        log=lambda: open("/dev/kmsg", "rb"),
    )


def changes_the_clock():
    return tried(
        clock=lambda: time.clock_settime(0, time.time()),
        device=lambda: open("/dev/rtc0", "rb"),
        name=lambda: socket.sethostname("x"),
    )


def has_privileges():
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    none = all(int(status[name], 16) == 0 for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"))
    through = [] if none and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2" else ["status"]
    other = tried(root=lambda: os.setuid(0)) if os.getuid() else []
    return through + other + tried(other=lambda: os.setuid(12345), device=lambda: os.mknod("d", 0o60666, 0x0100))


def raises_its_limits():
    def more(which):
        had = resource.getrlimit(which)
        resource.setrlimit(which, (had[1] + 1, had[1] + 1))

    return tried(
        memory=lambda: more(resource.RLIMIT_AS),
        size=lambda: more(resource.RLIMIT_FSIZE),
        files=lambda: more(resource.RLIMIT_NOFILE),
        first=lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
        real_time=lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    )


def speaks_for_its_server():
    found = []
    for place in range(3, 64):
        try:
            os.write(place, b"forged")
        except OSError:
            continue
        found.append(str(place))
    return found


def types_into_the_terminal():
    return tried(tty=lambda: fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x"))


def leaves_a_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(one, signal.SIG_IGN)
            os.closerange(0, 256)
            os.execv("/bin/sleep", ["sleep", info["mark"]])
        os._exit(0)
    os.wait()


def leaves_one_that_speaks():
    if os.fork() == 0:
        os.setsid()
        while True:
            os.write(1, b".")
            time.sleep(0.01)


def leaves_a_daemon_and_hangs():
    leaves_a_daemon()
    time.sleep(60)


def loops():
    while True:
        pass


def ignores_signals():
    for one in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(one, signal.SIG_IGN)
    time.sleep(60)


def stops_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


def forks_without_end():
    for _ in range(80):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    time.sleep(1)
    return ["80 processes"]


def starts_threads_without_end():
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    time.sleep(0.5)
    return ["200 threads"] if not info["threads"] else []


def takes_memory():
    return tried(at_once=lambda: bytearray(1 << 30))


def takes_memory_in_parts():
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # not to be looked into
    for _ in range(5):
        if os.fork() == 0:
            part = bytearray(b"x") * (60 << 20)
            time.sleep(20)
            os._exit(len(part) & 1)
    time.sleep(10)
    return ["300 MB"]


def fills_the_disk():
    def one(name, size):
        with open(name, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    return tried(large=lambda: one("large", 300 << 20))


def fills_the_disk_in_parts():
    def one(name):
        with open(name, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 200 << 20)

    through = tried(many=lambda: [one(f"part{n}") for n in range(4)])
    for name in os.listdir("."):
        if name.startswith(("part", "large")):
            os.unlink(name)
    return through


def floods():
    while True:
        os.write(1, b"\x1b[2J" * 10_000)


def floods_errors():
    while True:
        sys.stderr.write("y" * 100_000)


def closes_everything():
    os.closerange(0, 256)


def crashes():
    ctypes.string_at(0)


def raises_what_cannot_be_said():
    class Mute(BaseException):
        def __str__(self):
            raise SystemExit

    sys.stderr = sys.stdout = None
    raise Mute


HANGS = {"leaves_a_daemon_and_hangs", "loops", "ignores_signals", "stops_itself"}
ATTACKS = {
    name: one for name, one in list(vars().items()) if inspect.isfunction(one) and one.__module__ == __name__
}  # fmt: skip
RUNGS = {
    "Landlock": Landlock,
    "Bubblewrap": Bubblewrap,
    "Container": lambda **limits: Container(image=image.NAME, engine=image.engine(), **limits),
}


def text(name: str, info: dict) -> str:
    source = inspect.getsource(ATTACKS[name])
    if name == "leaves_a_daemon_and_hangs":
        source = inspect.getsource(ATTACKS["leaves_a_daemon"]) + source
    return PRELUDE.format(info=info, source=source, name=name)


def main(who: str, rung: str, *without: str) -> dict:
    become(who)
    sandboxed.WITHOUT = without
    with tempfile.TemporaryDirectory(dir="/tmp") as place, socket.create_server(("127.0.0.1", 0)) as server:
        os.chmod(place, 0o755)
        for name in ("secret", "own", "run", "temporary"):
            Path(place, name).mkdir()
        for name in ("secret/file", "own/file", "run/answers"):
            Path(place, name).write_text("hidden words")
        os.chdir(f"{place}/run")
        os.environ["TMPDIR"] = tempfile.tempdir = f"{place}/temporary"
        os.environ["TOKEN"] = "hidden words"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0gimbal-programs-" + str(os.getpid()))
        listener.listen()
        dummy = subprocess.Popen(["sleep", "600"], start_new_session=True)
        spec = RUNGS[rung](memory_gb=0.2, output=20_000)
        info = {
            "secret": f"{place}/secret/file", "own": f"{place}/own/file", "answers": f"{place}/run/answers",
            "home": os.path.expanduser("~"), "dummy": dummy.pid, "trainer": os.getpid(), "port": server.getsockname()[1],
            "rooted": "namespaces" not in without or rung != "Landlock", "threads": False, "mark": f"98765.{os.getpid()}",
        }  # fmt: skip
        try:
            found = attack(spec, info)
            left = {str(path.relative_to(place)): seen(path) for path in Path(place).rglob("*")}
        finally:
            alive = dummy.poll() is None
            dummy.kill()
            dummy.wait()
        found["intact"] = {"dummy": alive, "files": left}
    return found


def attack(spec, info) -> dict:
    sandbox = spec.start()
    sandbox.write("kept", b"kept")
    info["rooted"] = info["rooted"] and "namespaces" not in sandbox.worker.lacking
    info["threads"] = (
        "user" in sandbox.worker.lacking and not info["rooted"]
    )  # no limit of threads for an ordinary user
    found: dict = {"lacking": sandbox.worker.lacking}
    for name in ATTACKS:
        one = {"output": "", "errors": "", "code": 0, "left_over": 0, "said": "", "limit": ""}
        start = time.monotonic()
        try:
            outcome = sandbox.exec(text(name, info), seconds=0.4 if name in HANGS else 30.0)
            one |= {
                "output": outcome.output,
                "errors": outcome.errors[-300:],
                "code": outcome.code,
                "left_over": outcome.left,
            }
        except OverLimit as error:
            one |= {"said": str(error), "limit": error.limit}
        except SandboxError as error:
            one |= {"said": str(error), "limit": type(error).__name__}
            sandbox.close()
            sandbox = spec.start()
            sandbox.write("kept", b"kept")
        one["seconds"] = time.monotonic() - start
        one["after"] = sandbox.exec("print('alive', open('kept').read())").output
        one["marked"] = marked(info["mark"])
        if name == "links_out":
            one["opened"] = [
                path for path in ("secret", "own", "all/etc/passwd", "round", "pipe") if opened(sandbox, path)
            ]
        found[name] = one
    sandbox.close()
    return found


def seen(path: Path) -> str:
    about = path.stat()
    return f"{about.st_mode & 0o777:o} {path.read_text()}" if path.is_file() else ""


def opened(sandbox, path: str) -> bool:
    for action in (lambda: sandbox.read(path), lambda: sandbox.write(path, b"changed")):
        try:
            action()
            return True
        except OSError:
            continue
    return False
