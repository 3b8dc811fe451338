import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.processes import cpu_seconds, resident_bytes

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads what only Linux tells")

_BUSY = "import time\nwhile time.process_time() < 0.2: pass"
_LASTING = _BUSY + "\ntime.sleep(60)"


def test_time_of_a_child_counts_while_it_runs_and_after_it_has_ended() -> None:
    before = cpu_seconds([os.getpid()])
    subprocess.run([sys.executable, "-c", _BUSY], check=True)
    assert cpu_seconds([os.getpid()]) - before >= 0.15


def test_time_of_a_grandchild_counts() -> None:
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {_LASTING!r}])"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while (used_s := cpu_seconds([process.pid])) < 0.2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert used_s >= 0.2
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_process_that_is_gone_has_no_figures() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert resident_bytes(process.pid) == 0
    assert cpu_seconds([process.pid]) == 0
    assert resident_bytes(os.getpid()) > 2**20
