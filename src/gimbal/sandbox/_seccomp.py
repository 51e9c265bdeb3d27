"""A filter of system calls, in the kernel's own small language: what sandboxed code never needs and an attack does."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct

from gimbal.sandbox._kernel import call

PR_SET_SECCOMP, FILTER = 22, 2
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, MACHINE, FIRST = 0, 4, 16  # offsets: the call's number, the architecture, the low half of the first argument
NAMESPACES = 0x7E020000  # every CLONE_NEW... flag
OTHER_ABI = 0x40000000  # x32: the same calls under other numbers

ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
COLUMN = {"x86_64": 0, "aarch64": 1}
MEMORY = {"memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186)}
SPECIAL = {"clone": (56, 220), "clone3": (435, 435), "socket": (41, 198)}
REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),  # would make sockets past this filter
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "acct": (163, 89),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
}


# Landlock does not keep a file's owner from changing its mode, owner, times and attributes, granted or not.
PRETENDED = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}


def refuse_calls(*, network: bool, hidden_memory: bool, metadata: bool) -> None:
    """For this process and its children. Needs PR_SET_NO_NEW_PRIVS. ``hidden_memory``: memory that is on no process's
    account may be made. ``metadata``: that of files may be changed; else such calls do nothing and say that they did, for programs
    copy modes along and do not expect to be refused.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURE:
        raise OSError(f"no filter of system calls for {machine}")
    column = COLUMN[machine]
    refuse, absent = REFUSE | errno.EPERM, REFUSE | errno.ENOSYS
    code = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, ARCHITECTURE[machine]), (RETURN, 0, 0, refuse), (LOAD, 0, 0, NUMBER)]
    code += [(AT_LEAST, 0, 1, OTHER_ABI), (RETURN, 0, 0, refuse)]
    for numbers in REFUSED.values():
        code += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, refuse)]
    # "No such call", of which libc knows what to do instead. clone3's flags lie where a filter cannot read.
    for numbers in [SPECIAL["clone3"], *([] if hidden_memory else MEMORY.values())]:
        code += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, absent)]
    for numbers in () if metadata else PRETENDED.values():
        code += [] if numbers[column] is None else [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, REFUSE)]
    code += [(EQUAL, 0, 4, SPECIAL["clone"][column]), (LOAD, 0, 0, FIRST)]
    code += [(ANY_BIT, 0, 1, NAMESPACES), (RETURN, 0, 0, refuse), (RETURN, 0, 0, ALLOW)]
    if not network:
        code += [(EQUAL, 0, 4, SPECIAL["socket"][column]), (LOAD, 0, 0, FIRST)]
        code += [(EQUAL, 1, 0, socket.AF_UNIX), (RETURN, 0, 0, REFUSE | errno.ENETUNREACH), (RETURN, 0, 0, ALLOW)]
    code.append((RETURN, 0, 0, ALLOW))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
    program_head = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program))
    call("prctl", PR_SET_SECCOMP, ctypes.c_ulong(FILTER), program_head)
