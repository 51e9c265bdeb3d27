"""Servers of the tests' own, each a process at a free port that ends with the tests."""

import atexit
import socket
import subprocess
import sys
import time
from pathlib import Path


def served(command, port, directory="."):
    """The process, once something answers at its port."""
    process = subprocess.Popen(command, cwd=directory)
    atexit.register(process.kill)
    for _ in range(300):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return process
        assert process.poll() is None, f"{command} has ended"
        time.sleep(0.1)
    raise TimeoutError(f"{command} does not answer")


def free():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def guessing(sessions=64):
    """(own_openenv.py as a process, its address)."""
    port = free()
    own = Path(__file__).parent / "own_openenv.py"
    return served([sys.executable, str(own), str(port), str(sessions)], port), f"http://127.0.0.1:{port}"
