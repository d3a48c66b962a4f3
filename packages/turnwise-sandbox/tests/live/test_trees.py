"""Programs and sessions in trees of layers: what they see, what they change, and what is left."""

import ast
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import open_descriptors, temp_folders

import turnwise_sandbox
from turnwise_sandbox import Execution, Limits, LocalSandbox, Program, Tree, supervisor, tree_store
from turnwise_sandbox.errors import SandboxError
from turnwise_sandbox.unprivileged import find_shared_python

LIMITS = Limits(wall_s=20.0, memory_bytes=512 << 20, disk_bytes=4 << 20, num_files=256)
SITE_PACKAGES = Path(pytest.__file__).parents[1]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for path, content in {
        "package/__init__.py": "def f(x):\n    return x + 1\n",
        "package/other.py": "y = 1\n",
        "tests/test_f.py": "from package import f\n\ndef test_f():\n    assert f(1) == 2\n",
        "run.sh": "#!/bin/sh\necho ran\n",
    }.items():
        (tmp_path / "repository" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repository" / path).write_text(content)
    (tmp_path / "repository/run.sh").chmod(0o750)
    (tmp_path / "repository/link").symlink_to("package")
    return tmp_path / "repository"


@pytest.fixture(scope="module", params=["overlay", "copy", "uid", "process", "seccomp"])
def trees(sandbox, run, request):
    """The shared sandbox, with overlay; one that copies; and the levels that can only copy."""
    shared = run(sandbox.level())
    if request.param == "overlay":
        if shared.trees != "overlay":
            pytest.skip(f"no overlay: {shared.no_overlay}")
        yield sandbox
        return
    copying = LocalSandbox(num_slots=1, level="auto" if request.param == "copy" else request.param)
    try:
        level = run(copying.level())
    except SandboxError as error:
        pytest.skip(str(error))
    assert copying._host is not None
    if request.param == "copy":
        copying._host.no_overlay = "the test wants copies"
    else:
        assert level.trees == "copy"
        assert request.param in level.no_overlay
    yield copying
    run(copying.close())


def test_a_program_sees_the_merged_layers_and_its_changes_are_reported(trees, run, repository):
    tree = Tree(
        layers=(repository, {"package/__init__.py": b"bug\n", "tests/test_f.py": None}, {"tests/test_g.py": b"pass\n"})
    )
    code = """
import os
print(sorted(os.path.join(at, name)[2:] for at, _, names in os.walk(".") for name in names))
print(open("package/__init__.py").read(), open("link/other.py").read(), open("given").read())
print(os.popen("./run.sh").read(), os.stat("run.sh").st_uid == os.getuid())
os.chmod("package/other.py", 0o600)
open("package/__init__.py", "a").write("more\\n")
os.makedirs("new/folder")
open("new/folder/file", "wb").write(b"\\xff")
os.unlink("run.sh")
os.symlink("/etc/passwd", "escape")
os.mkfifo("fifo")
open(os.path.expanduser("~/home"), "w").close()
open(os.environ["TMPDIR"] + "/temporary", "w").close()
"""
    ended = run(trees.run(Program(code=code, tree=tree, files={"given": b"for the program"}), LIMITS))
    assert ended.stderr == b""
    lines = ended.stdout.decode().splitlines()
    assert lines[0] == str(["given", "package/__init__.py", "package/other.py", "run.sh", "tests/test_g.py"])
    assert lines[1:] == ["bug", " y = 1", " for the program", "ran", " True"]
    assert ended.changes == {
        "new/folder/file": b"\xff",
        "package/__init__.py": b"bug\nmore\n",
        "run.sh": None,
    }
    assert run(trees.run(Program(code="", tree=tree), LIMITS)).changes == {}
    twice = Tree(layers=(repository, {}, {"a": b"1"}, {"a": b"2"}, {}, {"a": b"1"}, repository))
    assert run(trees.run(Program(code="print(open('a').read())", tree=twice), LIMITS)).stdout == b"1\n"
    assert run(trees.run(Program(code=""), LIMITS)).changes is None
    assert (repository / "package/__init__.py").read_text() == "def f(x):\n    return x + 1\n"


def test_a_program_may_start_a_fresh_interpreter_that_runs_pytest(trees, run, repository):
    code = f"""
import os, sys
environment = {{**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": {str(SITE_PACKAGES)!r} + ":."}}
os.execve(sys.executable, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], environment)
"""
    for bug, verdict in ({}, b"1 passed"), ({"package/__init__.py": b"f = lambda x: x"}, b"1 failed"):
        tree = Tree(layers=(repository, bug), visible=(SITE_PACKAGES,))
        ended = run(trees.run(Program(code=code, tree=tree), LIMITS))
        assert verdict in ended.stdout, ended.text()
        assert ended.changes == {}
    hash_code = "import os, sys\nos.execve(sys.executable, [sys.executable, '-c', 'print(hash(\"a\"))'], "
    hash_code += "{**os.environ, 'PYTHONHASHSEED': os.environ.get('SEED', '%s')})"
    hashes = [run(trees.run(Program(code=hash_code % seed, tree=tree), LIMITS)).stdout for seed in (7, 7, 8)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_folder_of_the_tree_that_is_replaced_hides_what_it_held(trees, run, repository):
    code = """
import os, shutil
shutil.rmtree("tests")
os.mkdir("tests")
open("tests/test_h.py", "w").write("pass")
shutil.rmtree("package")
open("package", "w").write("a file")
os.unlink("link")
os.mkdir("link")
open("run.sh", "r+").write("#!/bin/sh")
"""
    ended = run(trees.run(Program(code=code, tree=Tree(layers=(repository,))), LIMITS))
    assert ended.changes == {
        "link": None,
        "package": b"a file",
        "package/__init__.py": None,
        "package/other.py": None,
        "tests/test_f.py": None,
        "tests/test_h.py": b"pass",
    }
    again = run(trees.run(Program(code="import os\nprint(os.listdir('tests'), open('package').read())",
                                  tree=Tree(layers=(repository, ended.changes))), LIMITS))  # fmt: skip
    assert again.stdout == b"['test_h.py'] a file\n"


def test_a_full_disk_is_a_limit_and_the_tree_itself_is_not_counted(trees, run, repository):
    (repository / "large").write_bytes(bytes(6 << 20))
    tree = Tree(layers=(repository,))
    code = "print(len(open('large', 'rb').read()))\nopen('own', 'wb').write(bytes(%d))"
    ended = run(trees.run(Program(code=code % (3 << 20), tree=tree), LIMITS))
    assert (ended.stdout, ended.limit, len(ended.changes["own"])) == (b"6291456\n", None, 3 << 20)
    assert run(trees.run(Program(code=code % (5 << 20), tree=tree), LIMITS)).limit == "disk"
    if run(trees.level()).name != "full":
        return  # without a scratch file system only the size of each file is bounded
    many = "for number in range(%d):\n  open(f'{number}', 'w').close()"
    assert run(trees.run(Program(code=many % 200, tree=tree), LIMITS)).ok
    assert run(trees.run(Program(code=many % 300, tree=tree), LIMITS)).limit == "disk"
    sparse = "import os\nfor number in range(4):\n  os.truncate(os.open(f'{number}', os.O_CREAT | os.O_RDWR), 2 << 20)"
    ended = run(trees.run(Program(code=sparse, tree=tree), LIMITS))
    assert (ended.limit, ended.changes) == ("disk", None)


def test_a_session_reports_resets_and_outlives_its_process(trees, run, repository):
    async def work():
        session = await trees.open("bash", tree=Tree(layers=(repository,)), limits=LIMITS)
        await session.run("x=1; echo edited > package/other.py; rm run.sh; sleep 60 &")
        await session.write_file("written", b"1")
        assert await session.read_file("tests/test_f.py") == (repository / "tests/test_f.py").read_bytes()
        edits = {"package/other.py": b"edited\n", "run.sh": None, "written": b"1"}
        assert await session.changes() == edits
        await session.run("kill -9 $$")
        with pytest.raises(SandboxError, match="over"):
            await session.run("echo")
        assert await session.changes() == edits
        await session.reset()
        assert await session.changes() == {}
        ended = await session.run("echo $x; cat package/other.py run.sh; jobs; ls written")
        assert ended.stdout.splitlines() == [b"", b"y = 1", b"#!/bin/sh", b"echo ran"]
        await session.run("echo again > again")
        assert await session.changes() == {"again": b"again\n"}
        await session.close()
        for use in (session.changes(), session.reset()):
            with pytest.raises(SandboxError, match="closed"):
                await use
        plain = await trees.open()
        for use in (plain.changes(), plain.reset()):
            with pytest.raises(SandboxError, match="no tree"):
                await use
        await plain.close()

    run(work())


def test_branches_have_edits_of_their_own(trees, run, repository):
    async def work():
        session = await trees.open(tree=Tree(layers=(repository,)), limits=LIMITS)
        await session.run("open('both', 'w').write('1')")
        branch = await session.fork()
        await branch.run("open('branch', 'w').write('2'); import os; os.unlink('run.sh')")
        await session.run("open('session', 'w').write('3')")
        assert await branch.changes() == {"both": b"1", "branch": b"2", "run.sh": None}
        assert await session.changes() == {"both": b"1", "session": b"3"}
        await branch.reset()
        assert await branch.changes() == {}
        assert await session.changes() == {"both": b"1", "session": b"3"}
        await session.close()
        assert (await branch.run("open('package/other.py').read()")).value == repr("y = 1\n")
        await branch.close()

    run(work())


def test_no_program_reaches_the_layers_or_the_edits_beside_its_tree(sandbox, full_level, run, repository):
    tree = Tree(layers=(repository, {"secret": b"the pristine test"}, {"secret": None}))
    code = """
import os
for at in ("/box/own/layer", "/box/empty"):
    print(os.listdir(at))
    try:
        open(at + "/x", "w")
    except OSError as error:
        print(error.strerror)
print(sorted(os.listdir("/box/own")), os.path.exists("secret"))
"""
    ended = run(sandbox.run(Program(code=code, tree=tree), LIMITS))
    assert ended.stdout.decode().splitlines() == [
        *("[]", "Read-only file system") * 2,
        "['layer', 'tmp', 'work'] False",
    ]
    assert run(sandbox.run(Program(code="import os\nprint(os.listdir('/box/own'))"), LIMITS)).ok


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"/etc/passwd": b""}, "is not a path inside the tree"),
        ({"../x": b""}, "is not a path inside the tree"),
        ({"a/../../x": b""}, "is not a path inside the tree"),
        ({"": b""}, "is not a path inside the tree"),
        ({"a\0": b""}, "is not a path inside the tree"),
        ({"link/x": b""}, "goes through the link 'link' of a lower layer"),
        ({"link/x": None}, "goes through the link 'link' of a lower layer"),
        ({"run.sh/x": b""}, "lies below 'run.sh', a file of a lower layer"),
        ({"a": b"", "a/b": b""}, "'a' is a file in the same layer as 'a/b'"),
        ({"a": "text"}, "is str; pass bytes"),
        (Path("missing"), "cannot read"),
        (Path(sys.executable), "is not a folder"),
    ],
)
def test_what_cannot_be_laid_is_refused(sandbox, run, repository, layer, message):
    for start in (
        lambda tree: sandbox.run(Program(code="", tree=tree), LIMITS),
        lambda tree: sandbox.open(tree=tree, limits=LIMITS),
    ):
        with pytest.raises(SandboxError, match=message):
            run(start(Tree(layers=(repository, layer))))
    with pytest.raises(SandboxError, match="0 layers"):
        run(sandbox.open(tree=Tree(layers=())))
    with pytest.raises(SandboxError, match="visible folder"):
        run(sandbox.open(tree=Tree(layers=(repository,), visible=(Path("missing"),))))
    os.mkfifo(repository / "package/fifo")
    with pytest.raises(SandboxError, match=r"'fifo' in the layer .* is a device, socket or FIFO"):
        run(sandbox.open(tree=Tree(layers=(repository / "package",))))
    (repository / "package/fifo").unlink()
    run(run(sandbox.open(tree=Tree(layers=(repository / "package",)))).close())


PLAIN_USER = """
import asyncio, json, sys
from pathlib import Path
sys.executable, folder, repository = sys.argv[1:]
sys.path.insert(0, folder)
from turnwise_sandbox import LocalSandbox, Program, Tree
from turnwise_sandbox.kernel import syscalls
syscalls.set_identity(65534, 65534)
syscalls.drop_privileges()

async def main():
    tree = Tree(layers=(Path(repository), {"package/other.py": b"y = 2"}))
    code = "import os, shutil\\nshutil.rmtree('tests')\\nos.mkdir('tests')\\n"
    code += "open('package/other.py', 'a').write('0')"
    async with LocalSandbox(num_slots=1) as sandbox:
        ended = await sandbox.run(Program(code=code, tree=tree))
        changes = {path: content and content.decode() for path, content in ended.changes.items()}
        print(json.dumps([(await sandbox.level()).trees, ended.stderr.decode(), changes]))

asyncio.run(main())
"""


def test_a_plain_user_has_overlay_too(as_root, run, tmp_path, repository):
    python = find_shared_python()
    for path in (repository / "run.sh", tmp_path, *tmp_path.parents[:-2]):
        path.chmod(0o755)
    shutil.copytree(Path(turnwise_sandbox.__file__).parent, tmp_path / "turnwise_sandbox")
    command = [python, "-I", "-B", "-c", PLAIN_USER, python, str(tmp_path), str(repository)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == ["overlay", "", {"package/other.py": "y = 20", "tests/test_f.py": None}]


def test_a_folder_is_read_once_and_layers_are_stored_once(sandbox, run, repository):
    async def work():
        stored = len(os.listdir(sandbox._host.store))
        tree = Tree(layers=(repository, {"package/other.py": b"y = 2"}))
        first = await sandbox.open(tree=tree, limits=LIMITS)
        (repository / "run.sh").write_text("changed later")
        second = await sandbox.open(tree=tree, limits=LIMITS)
        assert len(os.listdir(sandbox._host.store)) == stored + 2
        for session in (first, second):
            assert (await session.run("open('run.sh').read()")).value == repr("#!/bin/sh\necho ran\n")
            assert (await session.run("open('package/other.py').read()")).value == repr("y = 2")
            await session.close()
        for number in range(tree_store.MAX_IDLE_LAYERS + 3):
            await sandbox._store.take(replace(tree, layers=(repository, {"f": str(number).encode()})))
        for held in list(sandbox._store._uses):
            while sandbox._store._uses[held]:
                sandbox._store._drop([held])
        layers = [name for name in os.listdir(sandbox._host.store) if name.startswith("f")]
        assert len(layers) == tree_store.MAX_IDLE_LAYERS

    run(work())


def test_nothing_is_left_after_close_and_cancel(run, repository):
    async def work():
        tree = Tree(layers=(repository, {"package/other.py": b"y = 2"}))
        async with LocalSandbox(num_slots=2) as sandbox:
            await (await sandbox.open(tree=tree)).close()
            descriptors = open_descriptors()
            for number in range(12):
                work = sandbox.open(tree=tree) if number % 2 else sandbox.run(Program(code="input()", tree=tree))
                task = asyncio.ensure_future(work)
                await asyncio.sleep(number / 300)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    opened: Any = await task
                    if not isinstance(opened, Execution):
                        await opened.reset()
                        await opened.close()
            assert open_descriptors() <= descriptors + 16  # cgroups of a second cell
            assert sandbox._store is not None
            assert not sandbox._store._uses
            assert len(temp_folders(os.getpid())) >= 1
            assert sandbox._host is not None
            mine = sandbox._host._folder
        assert mine is not None
        assert not mine.exists()

    run(work())
    assert "turnwise-tree" not in Path("/proc/self/mountinfo").read_text()


RANDOM_EDITS = """
import os, random, shutil
draw = random.Random(%d)
for _ in range(40):
    at, folders, files = draw.choice(list(os.walk(".")))
    name = os.path.join(at, draw.choice([*folders, *files, "new", "other"]))
    try:
        match draw.randrange(8):
            case 0: open(name, "ab").write(b"more")
            case 1: open(name, "wb").close()
            case 2: os.unlink(name)
            case 3: shutil.rmtree(name)
            case 4: os.mkdir(name)
            case 5: os.symlink("package", name)
            case 6: shutil.move(name, os.path.join(at, "moved"))
            case 7: os.chmod(name, 0o700)
    except OSError:
        pass
found = {}
for at, folders, files in os.walk("."):
    for file in files:
        path = os.path.join(at, file)
        if os.path.isfile(path) and not os.path.islink(path):
            found[path[2:]] = open(path, "rb").read()
print(found)
"""


def test_the_changes_turn_the_layers_into_what_the_program_saw(trees, run, repository):
    layers = (repository, {"package/sub/deep.py": b"deep", "tests/test_f.py": None})
    plain = {
        str(path.relative_to(repository)): path.read_bytes()
        for path in repository.rglob("*")
        if path.is_file() and not path.is_symlink() and "link" not in path.parts
    }
    plain = {**plain, "package/sub/deep.py": b"deep"}
    del plain["tests/test_f.py"]
    for seed in range(12):
        ended = run(trees.run(Program(code=RANDOM_EDITS % seed, tree=Tree(layers=layers)), LIMITS))
        assert ended.stderr == b""
        left = {path: content for path, content in {**plain, **ended.changes}.items() if content is not None}
        assert left == ast.literal_eval(ended.stdout.decode()), seed


def test_interpreters_of_folders_that_are_shown_no_more_end(run, repository, monkeypatch):
    monkeypatch.setattr(supervisor, "MAX_IDLE_INTERPRETERS", 2)

    async def work():
        async with LocalSandbox(num_slots=1) as sandbox:
            for name in ("package", "tests", "package", ".", "tests"):
                shown = repository / name
                code = f"import os\nprint(os.listdir({str(shown)!r}) != [])"
                ended = await sandbox.run(Program(code=code, tree=Tree(layers=({},), visible=(shown,))), LIMITS)
                assert ended.stdout == b"True\n"
                assert sum(bool(visible) for _, visible in sandbox._zygotes) <= 2
            assert b"FileNotFound" in (await sandbox.run(Program(code=code), LIMITS)).stderr

    run(work())
