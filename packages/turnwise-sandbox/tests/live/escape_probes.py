"""Programs that try to break out of a sandbox, each with the property that must stop it.

A probe calls `escaped(WHAT)` when it succeeds; an OSError or MemoryError means that it was stopped. `escape_world.py`
checks from outside for effects on the host that a probe cannot see: a datagram that arrived, a file that appeared, a
process that died or stayed."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

PRELUDE = """
import ctypes, json, os, resource, signal, socket, struct, sys, threading, time
T = json.loads(open("targets.json").read())
NR = T["numbers"]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def call(name, *arguments):
    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(NR[name]), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result

def escaped(what):
    os.write(1, ("ESCAPED " + str(what)[:200] + "\\n").encode())
    os._exit(0)

def attempt():
"""

POSTLUDE = """
try:
    attempt()
except (OSError, MemoryError, RuntimeError, ValueError) as error:
    os.write(1, ("held: %s %s\\n" % (type(error).__name__, error)).encode())
else:
    os.write(1, b"held: nothing happened\\n")
"""


@dataclass(frozen=True)
class Probe:
    """One attempt."""

    name: str
    property: str
    """The property that must stop it; "always" if every level must."""
    body: str
    before: str = ""
    """A program that runs before it, in the same place."""
    violent: bool = False
    """Whether it would harm its surroundings, so that it runs only where the property is claimed, or in namespaces and
    groups made for it."""
    needs: str = ""
    """A target that this machine may lack; empty if it needs none."""
    control: bool = True
    """Whether it succeeds without isolation; False for what Linux refuses to every process."""

    @builtins.property  # the field above has the short name
    def code(self) -> str:
        return PRELUDE + "\n".join("    " + line for line in self.body.strip("\n").split("\n")) + POSTLUDE


def _calls(property: str, attempts: dict[str, str]) -> list[Probe]:
    """Probes that escape if one statement raises no error."""
    return [Probe(name, property, f"{statement}\nescaped({name!r})") for name, statement in attempts.items()]


_SECRET = "if T['secret'] in open({path}).read(): escaped('read ' + {path})"

PROBES: list[Probe] = [
    # ---------------------------------------------------------------------------------------------- reading
    Probe("read_shadow", "fs_read", "if 'root:' in open('/etc/shadow').read(): escaped('/etc/shadow')"),
    Probe("read_host_file", "fs_read", _SECRET.format(path="T['secret_path']")),
    Probe("read_relative_path", "fs_read", _SECRET.format(path="'../' * 30 + T['secret_path'][1:]")),
    Probe("read_through_root_of_pid_1", "fs_read", _SECRET.format(path="'/proc/1/root' + T['secret_path']")),
    Probe("read_through_root_of_victim", "fs_read",
          _SECRET.format(path="'/proc/%d/root%s' % (T['victim'], T['secret_path'])")),
    Probe("list_host_folder", "fs_read", "if 'secret' in os.listdir(T['folder']): escaped(T['folder'])"),
    Probe("read_hardlink", "fs_read", "os.link(T['secret_path'], 'hard')\n" + _SECRET.format(path="'hard'")),
    Probe("read_symlink", "fs_read", "os.symlink(T['secret_path'], 'soft')\n" + _SECRET.format(path="'soft'")),
    Probe("read_environ_of_victim", "fs_read",
          "if T['key'].encode() in open('/proc/%d/environ' % T['victim'], 'rb').read(): escaped(1)"),
    Probe("read_block_device", "fs_read", "os.open(T['disk'], os.O_RDONLY)\nescaped(T['disk'])", needs="disk"),
    Probe("read_kernel_log", "fs_read", "os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)\nescaped('/dev/kmsg')"),
    Probe("open_by_handle", "privileges", """
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
mount = ctypes.c_int()
call("name_to_handle_at", -100, T["secret_path"].encode(), handle, ctypes.byref(mount), 0)
call("open_by_handle_at", -100, handle, 0)
escaped("a handle")
"""),
    Probe("environment_is_cleared", "always", "if T['key'] in os.environ.values(): escaped('the environment')"),
    Probe("environment_of_parent", "always",
          "if T['key'].encode() in open('/proc/%d/environ' % os.getppid(), 'rb').read(): escaped(1)"),
    Probe("inherited_descriptors", "always", """
inherited = []
for fd in range(3, 4096):
    try:
        inherited.append((fd, os.fstat(fd).st_mode))
    except OSError:
        pass
if inherited: escaped(inherited)
""", control=False),
    # ---------------------------------------------------------------------------------------------- writing
    *_calls("fs_write", {
        "create_host_file": "open(T['folder'] + '/new', 'w').close()",
        "append_host_file": "open(T['writable'], 'a').write('x')",
        "truncate_host_file": "os.truncate(T['writable'], 0)",
        "delete_host_file": "os.unlink(T['deletable'])",
        "rename_host_file": "os.rename(T['writable'], T['writable'] + '.moved')",
        "make_host_folder": "os.mkdir(T['folder'] + '/folder')",
        "link_into_host_folder": "os.symlink('/', T['folder'] + '/link')",
        "write_into_library":
            "p = os.path.dirname(os.__file__) + '/turnwise_canary.py'\nopen(p, 'w').close()\nos.unlink(p)",
        "write_bytecode": "import importlib.util\nopen(importlib.util.cache_from_source(os.__file__), 'r+b').close()",
        "write_kernel_setting": "open('/proc/sys/kernel/core_pattern', 'r+').close()",
        "write_device_setting": "open('/sys/kernel/mm/transparent_hugepage/enabled', 'r+').close()",
    }),
    # The host checks whether the file is there.
    Probe("write_shared_memory_folder", "fs_write", "open('/dev/shm/' + T['token'], 'w').close()"),
    Probe("write_tmp", "fs_write", "open('/tmp/' + T['token'], 'w').close()"),
    *_calls("fs_meta", {
        "chmod_host_file": "os.chmod(T['owned'], 0o600)",
        "touch_host_file": "os.utime(T['owned'], (1, 1))",
        "attribute_of_host_file": "os.setxattr(T['owned'], 'user.turnwise', b'x')",
    }),
    # ---------------------------------------------------------------------------------------------- network
    Probe("tcp", "net", "socket.create_connection(('127.0.0.1', T['tcp']), timeout=1)\nescaped('connected')"),
    Probe("tcp_ipv6", "net", "socket.create_connection(('::1', T['tcp6']), timeout=1)\nescaped('connected')",
          needs="tcp6"),
    # The host checks whether the datagram arrives.
    Probe("udp", "net", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', T['udp']))"),
    *_calls("net", {
        "tcp_socket": "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
        "tcp_listener": "s = socket.socket()\ns.bind(('0.0.0.0', 0))\ns.listen()",
        "raw_socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "netlink_socket": "socket.socket(16, socket.SOCK_RAW, 0)",
        "packet_socket": "socket.socket(17, socket.SOCK_RAW, 0x300)",
    }),
    Probe("kernel_crypto_socket", "net", "socket.socket(38, socket.SOCK_SEQPACKET)\nescaped('AF_ALG')", control=False),
    Probe("internet_socketpair", "net",
          "call('socketpair', 2, 1, 0, ctypes.create_string_buffer(8))\nescaped('a pair')", control=False),
    Probe("vsock", "vsock", "socket.socket(40, socket.SOCK_STREAM)\nescaped('AF_VSOCK')"),
    Probe("abstract_socket", "abstract_unix",
          "socket.socket(socket.AF_UNIX).connect('\\0' + T['abstract'])\nescaped('connected')"),
    Probe("abstract_datagram", "abstract_unix", """
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '\\0' + T['abstract'] + '-datagram')
escaped('sent')
"""),
    Probe("named_socket", "unix_path",
          "socket.socket(socket.AF_UNIX).connect(T['folder'] + '/socket')\nescaped('connected')"),
    # ---------------------------------------------------------------------------------------------- other processes
    Probe("terminate_victim", "signals", "os.kill(T['victim'], 15)", violent=True),
    Probe("kill_all", "signals", "signal.signal(15, signal.SIG_IGN)\nos.kill(-1, 15)", violent=True),
    Probe("kill_group", "always", """
if os.getsid(0) != os.getpid(): escaped('the session is of process %d' % os.getsid(0))
signal.signal(15, signal.SIG_IGN)
os.kill(0, 15)
""", control=False),
    Probe("kill_parent", "signals", "os.kill(os.getppid(), 9)\ntime.sleep(0.05)", violent=True),
    Probe("stop_parent", "signals", "os.kill(os.getppid(), 19)\ntime.sleep(0.05)", violent=True),
    *_calls("ptrace", {
        "trace_victim": "call('ptrace', 16, T['victim'], 0, 0)",
        "trace_parent": "call('ptrace', 16, os.getppid(), 0, 0)",
        "seize_victim": "call('ptrace', 0x4206, T['victim'], 0, 0)",
        "open_memory_of_victim": "open('/proc/%d/mem' % T['victim'], 'rb')",
        "open_memory_of_parent": "open('/proc/%d/mem' % os.getppid(), 'r+b')",
        "maps_of_victim": "if not open('/proc/%d/maps' % T['victim']).read(9): raise OSError('empty')",
        "handle_of_victim": "call('pidfd_open', T['victim'], 0)",
        "compare_with_victim": "call('kcmp', os.getpid(), T['victim'], 1, 0, 0)",
        "limits_of_victim": "call('prlimit64', T['victim'], 7, 0, ctypes.create_string_buffer(16))",
        "nice_of_victim": "call('setpriority', 0, T['victim'], 5)",
        "affinity_of_victim": "call('sched_setaffinity', T['victim'], 8, ctypes.create_string_buffer(b'\\xff' * 8, 8))",
        "nice_of_parent": "call('setpriority', 0, os.getppid(), 5)",
        "limits_of_parent": "call('prlimit64', os.getppid(), 7, 0, ctypes.create_string_buffer(16))",
        "priority_of_group": "call('setpriority', 1, 0, 5)",
        "io_priority_of_victim": "call('ioprio_set', 1, T['victim'], 0x2007)",
    }),
    Probe("read_memory_of_parent", "ptrace", """
buffer = ctypes.create_string_buffer(64)
local = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(buffer), 64))
remote = ctypes.create_string_buffer(struct.pack("QQ", id(None), 16))
call("process_vm_readv", os.getppid(), local, 1, remote, 1, 0)
escaped("memory of the parent")
""", control=False),
    # ---------------------------------------------------------------------------------------------- kernel objects
    *_calls("ipc", {
        "shared_memory": "call('shmget', T['ipc_key'], 4096, 0o1666)",
        "message_queue": "call('msgget', T['ipc_key'], 0o1666)",
        "semaphores": "call('semget', T['ipc_key'], 1, 0o1666)",
        "posix_queue": "call('mq_open', T['token'].encode(), os.O_CREAT | os.O_RDWR, 0o600, 0)",
        "add_key": "call('add_key', b'user', T['token'].encode(), b'x', 1, -3)",
        "session_keyring": "call('keyctl', 0, -3, 1)",
    }),
    # ---------------------------------------------------------------------------------------------- privileges
    Probe("capabilities", "privileges", """
data = ctypes.create_string_buffer(24)
call("capget", ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0)), data)
held = [value for value in struct.unpack("6I", data.raw) if value]
if held: escaped("capabilities %r" % held)
if call("prctl", 39, 0, 0, 0, 0) != 1: escaped("exec may gain privileges")
"""),
    Probe("become_root", "privileges", """
for name in ("setuid", "setgid"):
    try: call(name, 0)
    except OSError: pass
try: call("setresuid", 0, 0, 0)
except OSError: pass
data = ctypes.create_string_buffer(24)
call("capget", ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0)), data)
if any(struct.unpack("6I", data.raw)): escaped("capabilities after setuid")
"""),
    *_calls("privileges", {
        "change_root": "os.mkdir('new')\nos.chroot('new')",
        "mount_tmpfs": "call('mount', b'none', b'.', b'tmpfs', 0, 0)",
        "bind_mount": "call('mount', b'/', b'.', 0, 4096 | 16384, 0)",
        "new_file_system": "call('fsopen', b'tmpfs', 0)",
        "clone_mounts": "call('open_tree', -100, b'/', 1)",
        "unshare_user": "call('unshare', 0x10000000)",
        "unshare_mounts": "call('unshare', 0x00020000)",
        "unshare_network": "call('unshare', 0x40000000)",
        "unshare_pids": "call('unshare', 0x20000000)",
        "unshare_cgroup": "call('unshare', 0x02000000)",
        "clone_into_user_namespace": "if call('clone', 0x10000000 | 17, 0, 0, 0, 0) == 0: os._exit(0)",
        "clone_into_network": "if call('clone', 0x40000000 | 17, 0, 0, 0, 0) == 0: os._exit(0)",
        "clone3": "if call('clone3', struct.pack('11Q', 1 << 28, 0, 0, 0, 17, *[0] * 6), 88) == 0: os._exit(0)",
        "join_namespace": "call('setns', os.open('/proc/%d/ns/net' % os.getppid(), os.O_RDONLY), 0)",
        "character_device": "os.mknod('device', 0o20666, os.makedev(1, 5))",
        "block_device": "os.mknod('device', 0o60666, os.makedev(8, 0))",
        "io_uring": "call('io_uring_setup', 4, ctypes.create_string_buffer(120))",
        "bpf": "call('bpf', 0, ctypes.create_string_buffer(struct.pack('IIII', 2, 4, 4, 1) + bytes(112)), 128)",
        "userfaultfd": "call('userfaultfd', 0)",
        "perf_events": "attributes = ctypes.create_string_buffer(struct.pack('IIQ', 1, 112, 0) + bytes(96))\n"
        "call('perf_event_open', attributes, 0, -1, -1, 0)",
        "personality": "call('personality', 0x0040000)",
        "kernel_log": "call('syslog', 3, ctypes.create_string_buffer(64), 64)",
        "own_filter": "allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n"
        "call('seccomp', 1, 0, ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(allow))))",
    }),
    Probe("other_entry_points", "privileges", """
import mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\x31\\xdb\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # getpid through int 0x80
answer = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
if answer == os.getpid(): escaped("a call of the 32-bit kind")
""", needs="x86_64"),
    # ---------------------------------------------------------------------------------------------- amounts
    Probe("many_processes", "pids", """
for count in range(3 * T["num_pids"]):
    if os.fork() == 0:
        signal.pause()
        os._exit(0)
escaped("%d processes" % count)
""", violent=True),
    Probe("many_threads", "pids", """
for count in range(3 * T["num_pids"]):
    threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
escaped("%d threads" % count)
""", violent=True),
    Probe("large_allocation", "mem_proc", "bytearray(4 * T['memory_bytes'])\nescaped('4 times the limit')",
          violent=True),
    Probe("mapped_memory", "mem_proc", """
import mmap
held = mmap.mmap(-1, 4 * T["memory_bytes"], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(held), 4096): held[at] = 1
escaped("mapped")
""", violent=True),
    Probe("memory_of_many", "mem_total", """
reader, writer = os.pipe()
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        held = bytearray(b"x" * (T["memory_bytes"] // 4))
        os.write(writer, b"x")
        signal.pause()
        os._exit(0)
    children.append(child)
os.close(writer)
os.set_blocking(reader, False)
holding, deadline = 0, time.monotonic() + 3
while holding < 8 and time.monotonic() < deadline:
    try: holding += len(os.read(reader, 8))
    except BlockingIOError: time.sleep(0.01)
    if any(os.waitpid(child, os.WNOHANG)[0] for child in list(children)): break
if holding == 8: escaped("twice the limit, in 8 processes")
""", violent=True),
    Probe("shared_memory_file", "mem_total", """
fd = call("memfd_create", b"x", 0)
for _ in range(2 * T["memory_bytes"] >> 20): os.write(fd, bytes(1 << 20))
escaped("twice the limit, in a memfd")
""", violent=True),
    Probe("processor_limit", "cpu",
          "if resource.getrlimit(resource.RLIMIT_CPU)[1] in (-1, 1 << 62): escaped('no limit')"),
    Probe("raise_processor_limit", "cpu", "resource.setrlimit(resource.RLIMIT_CPU, (9999, 9999))\nescaped('raised')"),
    Probe("fill_disk", "disk_total", """
for index in range(2 * T["disk_bytes"] >> 20):
    open("file%d" % index, "wb").write(bytes(1 << 20))
escaped("twice the quota")
"""),
    Probe("fill_tmp", "disk_total", """
for folder in ("work", "tmp"):
    for index in range(3 * T["disk_bytes"] >> 22):
        open("%s/../%s/file%d" % (os.environ["TMPDIR"], folder, index), "wb").write(bytes(1 << 21))
escaped("the quota, twice")
"""),
    Probe("many_files", "disk_total", """
for index in range(4 * T["num_files"]):
    open("file%d" % index, "w").close()
escaped("four times as many files")
"""),
    Probe("one_large_file", "always", """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("file", "wb") as file:
    for _ in range(2 * T["disk_bytes"] >> 20): file.write(bytes(1 << 20))
escaped("twice the quota")
"""),
    Probe("sparse_file", "always", """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
os.truncate(os.open("f", 0o102), 1 << 40)
escaped("a file of 2**40 bytes")
"""),
    # ---------------------------------------------------------------------------------------------- what stays behind
    Probe("daemon", "kill_tree", """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        call("prctl", 15, b"tw-daemon", 0, 0, 0)
        for signal_number in (1, 2, 13, 15): signal.signal(signal_number, signal.SIG_IGN)
        time.sleep(20)
    os._exit(0)
os.wait()
time.sleep(0.02)
"""),
    Probe("daemon_chain", "kill_tree", """
if os.fork() == 0:
    call("prctl", 15, b"tw-daemon", 0, 0, 0)
    ends = time.monotonic() + 3
    while time.monotonic() < ends:  # each process ends after it has forked the next
        if os.fork(): os._exit(0)
        os.setsid()
    os._exit(0)
time.sleep(0.02)
"""),
    Probe("left_files", "cross_exec", """
token = T["token"]
for path in ("left", "folder", os.environ["TMPDIR"] + "/left", f"/tmp/{token}-left", f"/dev/shm/{token}-left"):
    if os.path.lexists(path): escaped(path)
""", before="""
import os, json
token = json.loads(open("targets.json").read())["token"]
os.makedirs("folder/sub")
for path in ("left", os.environ.get("TMPDIR", "/tmp") + "/left", f"/tmp/{token}-left", f"/dev/shm/{token}-left"):
    try: open(path, "w").close()
    except OSError: pass
os.chmod("folder/sub", 0)
"""),
    Probe("left_umask", "always", "if os.umask(0o022) != 0o022: escaped(1)", before="import os\nos.umask(0o777)",
          control=False),
    Probe("memory_of_the_previous_program", "always", """
needle = bytes(c ^ 1 for c in b"L@SJDS,NG,@ONUIDS,QSNFS@L")
for line in open("/proc/self/maps"):
    area, mode = line.split()[:2]
    if mode[0] != "r" or "[v" in line: continue
    start, end = (int(part, 16) for part in area.split("-"))
    data = ctypes.string_at(start, end - start)
    at = data.find(needle)
    while at >= 0:  # this program's memory also holds the needle, but not what follows it
        if bytes(c ^ 1 for c in data[at + 25 : at + 33]) == b",QM@OUDE": escaped("found at %x" % (start + at))
        at = data.find(needle, at + 1)
""", before="x = 'MARKER-OF-ANOTHER-PROGRAM' + '-PLANTED'\ny = [x + str(i) for i in range(100)]\nprint(len(y))",
control=False),
]  # fmt: skip

BY_NAME = {probe.name: probe for probe in PROBES}
