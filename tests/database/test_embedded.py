"""The embedded PostgreSQL, started, shared, killed and left behind in every way we know of."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.database import binaries, embedded, server_process
from app.database.binaries import Account, find_binaries, runnable_binaries
from app.database.cluster import Cluster, server_settings
from app.database.embedded import EmbeddedPostgres, start_embedded
from app.errors import DatabaseSetupError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused by PostgreSQL")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_REPOSITORY = Path(__file__).parents[2]
_HOLD = """
import sys
from pathlib import Path
from app.database.embedded import start_embedded
with start_embedded(Path(sys.argv[1]), durable=False):
    try:
        print("ready", flush=True)
        sys.stdin.read()
    except KeyboardInterrupt:
        pass
print("left", flush=True)
"""

Start = Callable[..., EmbeddedPostgres]
Hold = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start_embedded`, and afterwards nothing of it is left running."""
    started: list[EmbeddedPostgres] = []

    def begin(data_dir: Path, *, durable: bool = False) -> EmbeddedPostgres:
        server = start_embedded(data_dir, durable=durable)
        started.append(server)
        return server

    yield begin
    for server in started:
        server.close()
        server_process.stop(server._cluster)


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Another process that uses the server until its standard input is closed."""
    children: list[subprocess.Popen[str]] = []

    def begin(data_dir: Path) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(data_dir)],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the row 1 in the table `kept`, stopped in order."""
    data_dir = tmp_path_factory.mktemp("stopped")
    with start_embedded(data_dir, durable=False) as server:
        run(server, "CREATE TABLE kept AS SELECT 1 AS n")
    return data_dir


@pytest.fixture
def data_dir(stopped: Path, tmp_path: Path) -> Path:
    """A fresh copy of it: quicker than a fresh initdb."""
    copy = tmp_path / "data"
    subprocess.run(["cp", "-a", stopped, copy], check=True)
    return copy


def run(server: EmbeddedPostgres, statement: str) -> object:
    """The first value that the statement returns in the service's database."""

    async def ask() -> object:
        connection = await asyncpg.connect(server.dsn_for("temporal_memory"))
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(ask())


def wait_until(come_true: Callable[[], bool]) -> None:
    while not come_true():
        time.sleep(0.005)


def postmaster_of(server: EmbeddedPostgres) -> int:
    pid = server_process.postmaster(server._cluster)
    assert pid is not None
    return pid


def is_stopped(server: EmbeddedPostgres) -> bool:
    return not server_process._processes(server._cluster)


def test_a_first_start_gives_utf8_and_pgvector_whatever_the_locale(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("LANG", "POSIX")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGPORT", "1")
    server = start(tmp_path / "new" / "data")
    assert run(server, "SELECT current_setting('server_encoding')") == "UTF8"
    assert run(server, "SELECT datctype FROM pg_database WHERE datname = current_database()") == "C.UTF-8"
    assert run(server, "SELECT '订单号' ~ '^[[:alpha:]]+$'") is True
    assert run(server, "SELECT ('[1,2]'::vector <-> '[1,2]'::vector)::text") == "0"
    assert run(server, "SELECT current_setting('listen_addresses')") == ""
    assert run(server, "SELECT current_setting('jit')") == "off"
    assert run(server, "SELECT current_setting('cluster_name')") == "temporal-memory"


def test_sqlalchemy_takes_the_url(data_dir: Path, start: Start) -> None:
    server = start(data_dir)

    async def ask() -> object:
        engine = create_async_engine(server.url)
        async with engine.connect() as connection:
            found = (await connection.execute(text("SELECT n FROM kept"))).scalar_one()
        await engine.dispose()
        return found

    assert asyncio.run(ask()) == 1


async def test_it_starts_in_a_thread_that_runs_a_loop(data_dir: Path, start: Start) -> None:
    server = start(data_dir)
    connection = await asyncpg.connect(server.dsn_for("postgres"))
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


def test_the_last_to_leave_stops_it(data_dir: Path, start: Start) -> None:
    first, second = start(data_dir), start(data_dir)
    pid = postmaster_of(first)
    first.close()
    first.close()
    assert run(second, "SELECT n FROM kept") == 1
    assert postmaster_of(second) == pid
    second.close()
    assert is_stopped(second)


def test_processes_share_it_and_a_killed_one_does_not_count(data_dir: Path, start: Start, hold: Hold) -> None:
    killed, leaving = hold(data_dir), hold(data_dir)
    for child in (killed, leaving):
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    ours = start(data_dir)
    killed.kill()
    killed.wait()
    out, _ = leaving.communicate("")
    assert out == "left\n"
    assert run(ours, "SELECT n FROM kept") == 1
    ours.close()
    assert is_stopped(ours)


def test_several_first_starts_at_once_make_one_server(tmp_path: Path, start: Start, hold: Hold) -> None:
    children = [hold(tmp_path / "data") for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    ours = start(tmp_path / "data")
    for child in children:
        child.communicate("")
        assert child.returncode == 0
    ours.close()
    assert is_stopped(ours)


def test_a_killed_service_leaves_its_server_to_the_next(data_dir: Path, start: Start, hold: Hold) -> None:
    child = hold(data_dir)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.kill()
    child.wait()
    server = start(data_dir)
    assert run(server, "SELECT n FROM kept") == 1
    server.close()
    assert is_stopped(server)


def test_ctrl_c_in_the_terminal_leaves_the_order_of_stopping_to_us(
    data_dir: Path, start: Start, hold: Hold
) -> None:
    ours = start(data_dir)
    child = hold(data_dir)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    assert os.getpgid(postmaster_of(ours)) != os.getpgid(child.pid)
    os.killpg(child.pid, signal.SIGINT)
    out, _ = child.communicate()
    assert out == "left\n"
    assert run(ours, "SELECT n FROM kept") == 1


def test_a_forked_child_does_not_stop_what_its_parent_uses(data_dir: Path, start: Start) -> None:
    script = f"""
import os, sys
from pathlib import Path
from app.database.embedded import start_embedded
server = start_embedded(Path({str(data_dir)!r}), durable=False)
if os.fork() == 0:
    server.close()
    sys.exit()
os.wait()
print(server._users is not None, flush=True)
os._exit(0)
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], cwd=_REPOSITORY, check=True, capture_output=True
    )
    server = start(data_dir)
    assert "shut down" not in server._cluster.log.read_text().rpartition("ready to accept")[2]


def test_it_starts_anew_after_its_postmaster_was_killed(data_dir: Path, start: Start) -> None:
    first = start(data_dir, durable=True)
    run(first, "INSERT INTO kept VALUES (2)")
    dead = postmaster_of(first)
    os.kill(dead, signal.SIGKILL)
    second = start(data_dir)
    assert postmaster_of(second) != dead
    assert run(second, "SELECT count(*) FROM kept") == 2


@needs_linux
def test_a_postmaster_that_nobody_reaped_is_not_taken_for_alive(data_dir: Path, start: Start) -> None:
    script = f"""
import ctypes, os, signal
from pathlib import Path
from app.database import server_process
from app.database.embedded import start_embedded
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
first = start_embedded(Path({str(data_dir)!r}), durable=False)
pid = server_process.postmaster(first._cluster)
os.kill(pid, signal.SIGKILL)
while (state := Path(f"/proc/{{pid}}/stat").read_text().split()[2]) != "Z":
    pass
with start_embedded(Path({str(data_dir)!r}), durable=False) as second:
    os.kill(pid, 0)
    assert server_process.postmaster(second._cluster) not in (None, pid)
first.close()
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=_REPOSITORY, check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


@needs_linux
async def test_backends_that_outlive_their_postmaster_are_ended(data_dir: Path, start: Start) -> None:
    first = await asyncio.to_thread(start, data_dir)
    connection = await asyncpg.connect(first.dsn_for("postgres"))
    backend = connection.get_server_pid()
    busy = asyncio.create_task(connection.fetchval("SELECT count(*) FROM generate_series(1, 1e12)"))
    await asyncio.to_thread(wait_until, lambda: "SELECT" in Path(f"/proc/{backend}/cmdline").read_text())
    os.kill(postmaster_of(first), signal.SIGKILL)
    second = await asyncio.to_thread(start, data_dir)
    assert not server_process.is_running(backend)
    with pytest.raises((asyncpg.PostgresError, OSError)):
        await busy
    connection.terminate()
    assert await asyncio.to_thread(run, second, "SELECT n FROM kept") == 1


@pytest.mark.parametrize("damage", ["socket deleted", "frozen"])
def test_a_server_that_cannot_be_reached_is_replaced(
    data_dir: Path, start: Start, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(embedded, "_SILENCE_LIMIT_S", 0.2)
    monkeypatch.setattr(embedded, "_CONNECT_LIMIT_S", 0.2)
    monkeypatch.setattr(server_process, "_FAST_STOP_LIMIT_S", 5.0)
    first = start(data_dir)
    old = postmaster_of(first)
    if damage == "frozen":
        os.kill(old, signal.SIGSTOP)
    else:
        shutil.rmtree(data_dir / "run")
    second = start(data_dir)
    assert postmaster_of(second) != old
    assert run(second, "SELECT n FROM kept") == 1


def test_what_a_killed_initdb_left_is_cleared_away(tmp_path: Path, start: Start, hold: Hold) -> None:
    data_dir = tmp_path / "data"
    child = hold(data_dir)
    wait_until(lambda: bool(list(data_dir.glob("initdb-*/base"))))
    child.kill()
    child.wait()
    (data_dir / "postgres").mkdir(exist_ok=True)
    server = start(data_dir)
    assert run(server, "SELECT 1") == 1
    assert sorted(path.name for path in data_dir.iterdir()) == ["postgres", "postgres.log", "run"]


def test_data_of_another_major_version_is_refused_untouched(data_dir: Path) -> None:
    (data_dir / "postgres" / "PG_VERSION").write_text("14\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in (data_dir / "postgres").rglob("*"))
    with pytest.raises(DatabaseSetupError, match=r"is of PostgreSQL 14, the installed programs are of \d+"):
        start_embedded(data_dir)
    assert sorted((path, path.stat().st_mtime_ns) for path in (data_dir / "postgres").rglob("*")) == before


def test_a_folder_of_something_else_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "diary.txt").write_text("mine")
    with pytest.raises(DatabaseSetupError, match="holds no PostgreSQL data"):
        start_embedded(tmp_path)
    assert (tmp_path / "postgres" / "diary.txt").read_text() == "mine"


def test_a_failed_start_quotes_the_server_and_leaves_nothing_locked(data_dir: Path, start: Start) -> None:
    conf = data_dir / "postgres" / "postgresql.conf"
    good = conf.read_text()
    conf.write_text(f"{good}\nshared_buffers = plenty\n")
    with pytest.raises(DatabaseSetupError) as refused:
        start_embedded(data_dir)
    assert "\n" not in str(refused.value)
    assert "postgresql.conf" in str(refused.value)
    assert str(data_dir / "postgres.log") in str(refused.value)
    conf.write_text(good)
    assert run(start(data_dir), "SELECT n FROM kept") == 1


def test_a_data_directory_that_cannot_be_made_is_one_line() -> None:
    with pytest.raises(DatabaseSetupError, match=r"^The data directory /dev/null/data cannot be used: .*$"):
        start_embedded(Path("/dev/null/data"))


@pytest.mark.parametrize("name", ["a" * 120, "my data, 记忆: 100%"])
def test_a_path_that_no_socket_or_url_could_name_works(
    stopped: Path, tmp_path: Path, start: Start, name: str
) -> None:
    subprocess.run(["cp", "-a", stopped, tmp_path / name], check=True)
    first, second = start(tmp_path / name), start(tmp_path / name)
    assert run(first, "SELECT n FROM kept") == 1
    short = second._short_path
    assert short is not None
    second.close()
    assert not short.exists()
    assert run(first, "SELECT n FROM kept") == 1


@needs_root
def test_root_keeps_its_data_under_a_folder_closed_to_others(
    stopped: Path, tmp_path: Path, start: Start
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    subprocess.run(["cp", "-a", stopped, closed / "data"], check=True)
    server = start(closed / "data")
    assert Path(f"/proc/{postmaster_of(server)}").stat().st_uid != 0
    assert run(server, "SELECT n FROM kept") == 1
    assert closed.stat().st_mode & 0o777 == 0o700


@needs_root
def test_data_that_root_restored_is_given_to_the_server(data_dir: Path, start: Start) -> None:
    subprocess.run(["chown", "-R", "0:0", data_dir], check=True)
    assert run(start(data_dir), "SELECT n FROM kept") == 1


@needs_root
def test_an_ordinary_user_starts_it_too() -> None:
    nobody = pwd.getpwnam("nobody")
    home = Path(tempfile.mkdtemp(dir="/tmp"))
    # The user is changed after the imports: the interpreter itself may be closed to others.
    script = f"""
import os, asyncio
from pathlib import Path
import asyncpg
from app.database import embedded
os.setgroups([])
os.setgid({nobody.pw_gid})
os.setuid({nobody.pw_uid})
with embedded.start_embedded(Path({str(home / "data")!r}), durable=False) as server:
    print(os.geteuid(), server.url)
"""
    try:
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        ran = subprocess.run(
            [sys.executable, "-c", script], cwd=_REPOSITORY, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        assert {path.stat().st_uid for path in home.rglob("*")} == {nobody.pw_uid}
    finally:
        shutil.rmtree(home)


@needs_root
def test_programs_that_the_servers_user_cannot_reach_are_copied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = find_binaries().parents[1]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for folder in (package, package.with_name(f"{package.name}.libs")):
        if folder.is_dir():
            shutil.copytree(folder, closed / folder.name)
    hidden = closed / package.name / find_binaries().relative_to(package)
    nobody = pwd.getpwnam("nobody")
    account = Account(nobody.pw_uid, nobody.pw_gid)
    copies = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(binaries, "_COPIES", copies)
    try:
        copied = runnable_binaries(hidden, account=account)
        assert copies in copied.parents
        assert runnable_binaries(hidden, account=account) == copied
        assert runnable_binaries(copied, account=account) == copied
        assert len(list(copies.iterdir())) == 1
    finally:
        shutil.rmtree(copies)


def test_without_an_installed_server_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_PACKAGES", ("no_such_package_anywhere",))
    with pytest.raises(
        DatabaseSetupError, match=r"^No DATABASE_URL is set and no embedded PostgreSQL is installed"
    ):
        find_binaries()


def test_the_newest_server_of_a_package_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (9, 16, 18):
        bin_dir = tmp_path / "many_servers" / f"pginstall{version}" / "bin"
        bin_dir.mkdir(parents=True)
        (bin_dir / "postgres").touch()
    (tmp_path / "many_servers" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(binaries, "_PACKAGES", ("many_servers",))
    assert find_binaries() == tmp_path / "many_servers" / "pginstall18" / "bin"


@pytest.mark.parametrize(
    ("memory_mib", "shared"), [(256, "128MB"), (4096, "512MB"), (16384, "2048MB"), (262144, "2048MB")]
)
def test_shared_buffers_fit_the_machine(memory_mib: int, shared: str) -> None:
    assert f"shared_buffers = {shared}" in server_settings(memory_bytes=memory_mib << 20, durable=True)


def test_only_tests_give_up_durability() -> None:
    assert not any("fsync" in line for line in server_settings(memory_bytes=1 << 33, durable=True))
    assert "fsync = off" in server_settings(memory_bytes=1 << 33, durable=False)


def test_a_large_log_keeps_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "_LOG_LIMIT_BYTES", 1000)
    monkeypatch.setattr(server_process, "_LOG_KEPT_BYTES", 9)
    log = tmp_path / "postgres.log"
    log.write_text("x" * 1000 + "the end.\n")
    with log.open("a") as server:
        server_process.bound_log(log)
        server.write("more\n")
    assert log.read_text() == "the end.\nmore\n"


def test_the_last_fatal_line_that_is_a_cause_is_quoted(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    log.write_text("2026 UTC [1] FATAL:  old\n")
    since = log.stat().st_size
    with log.open("a") as file:
        file.write("2026 UTC [2] FATAL:  no space\n2026 UTC [2] LOG:  database system is shut down\n")
        file.write("2026 UTC [3] FATAL:  the database system is starting up\n")
    assert server_process.last_words(log, since_bytes=since) == "FATAL:  no space"
    assert server_process.last_words(tmp_path / "none", since_bytes=0) == "no log"


def test_a_process_that_is_gone_is_not_running() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert not server_process.is_running(child.pid)
    assert server_process.is_running(os.getpid())


def test_a_shell_in_the_data_directory_is_no_server(data_dir: Path) -> None:
    cluster = Cluster(data_dir, find_binaries(), None)
    shell = subprocess.Popen(["sleep", "60"], cwd=cluster.data)
    try:
        server_process.clear_away(cluster)
        assert shell.poll() is None
    finally:
        shell.kill()
        shell.wait()
