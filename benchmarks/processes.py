"""What the system says of running processes (Linux; elsewhere every figure is 0)."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM now."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(roots: Iterable[int]) -> float:
    """Processor time used so far by these processes and all below them, those that have ended included."""
    if not _PROC.is_dir():
        return 0.0
    figures = _read_all()
    ticks = 0
    waiting = [pid for pid in roots if pid in figures]
    while waiting:
        pid = waiting.pop()
        ticks += figures[pid][1]
        waiting.extend(child for child, (parent, _) in figures.items() if parent == pid)
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_all() -> dict[int, tuple[int, int]]:
    """Parent and clock ticks of every process."""
    figures = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The name, in parentheses, may hold blanks; what follows it does not.
                fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                figures[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    return figures
