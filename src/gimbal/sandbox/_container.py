"""The first process of a container: it starts programs there as another user, and answers calls over its standard streams.

It is run by the image's Python, and imports no package. Programs cannot reach it: it keeps a user of its own, and its descriptors.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import sys

from gimbal.sandbox._confine import FILE_BYTES
from gimbal.sandbox._programs import Programs

USER = 65534  # of programs: nobody


def main(memory: int, processes: int, output: int) -> None:
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    # Engines give these the mode that they have in the image, or one of their own.
    for place, mode in ((os.environ["TMPDIR"], 0o1777), ("/tmp", 0o1777), ("/run", 0o755), ("/var/tmp", 0o755)):
        os.chmod(place, mode)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    programs = Programs(memory, processes, output, user=USER)
    programs.landlock = False  # another user needs no layer of its own
    answers.write(b'{"ready": "%d.%d"}\n' % sys.version_info[:2])
    answers.flush()
    for line in calls:
        what, *arguments = json.loads(line)
        if what == "exec":
            arguments[1] = base64.b64decode(arguments[1])
        answers.write(json.dumps(programs(what, *arguments)).encode() + b"\n")
        answers.flush()
