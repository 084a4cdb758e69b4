"""Testbeds made, found and removed by `ip` and `tc`; a testbed is its namespaces, and nothing else remembers it.

A worker's namespace has one end of a veth pair, ``eth0``, with a token bucket for what the worker sends; the other end,
in the namespace of the switches, shapes what it receives. A node's uplink is such a pair between its switch (``up0``)
and the core switch (``down0``).
"""

import ctypes
import json
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from s2sim.errors import OptionError, S2SimError, suggest_nearest
from s2sim.files import own_tables
from s2sim.testbed import layout as net

# The switch that joins all; what a testbed is stands on it, for there is no file that says so.
CORE = "core"
# Long enough for any queue, so that nothing is sent twice because it waits in one.
_RTO_MIN = "2s"
NAMESPACES = Path("/run/netns")
# Bits of the capabilities of a process (linux/capability.h).
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
_CLONE_NEWNET, _PR_SET_PDEATHSIG = 0x40000000, 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_KERNEL = own_tables(__file__, "kernel.toml")


def layout_text(layout: net.NetworkLayout) -> str:
    """Return a layout, but for its name, as it stands on its switch.

    >>> layout_text(net.NetworkLayout("mine", 8, 2, 125e6, 62.5e6))
    'workers=8,nodes=2,rate_Bps=125000000.0,uplink_Bps=62500000.0'
    """
    return ",".join(f"{key}={value!r}" for key, value in asdict(layout).items() if key != "name")


def layout_from(name: str, text: str) -> net.NetworkLayout | None:
    """Return the layout that `layout_text` wrote, None for anything else.

    >>> layout_from("mine", "workers=2,nodes=2,rate_Bps=inf,uplink_Bps=inf")
    NetworkLayout(name='mine', workers=2, nodes=2, rate_Bps=inf, uplink_Bps=inf)
    >>> layout_from("mine", "") is None
    True
    """
    values = dict(part.partition("=")[::2] for part in text.split(","))
    forms = {"workers": int, "nodes": int, "rate_Bps": float, "uplink_Bps": float}
    try:
        return net.NetworkLayout(name, **{key: form(values[key]) for key, form in forms.items()})
    except (KeyError, ValueError, S2SimError):
        return None


def switch_lines(layout: net.NetworkLayout) -> list[str]:
    """Return what makes bridges and links, in the namespace of the switches."""
    lines = [*_bridge(CORE)]
    for node in range(layout.nodes if layout.joined else 0):
        lines += [*_bridge(f"node{node}"), f"link add up{node} type veth peer name down{node}"]
        lines += [_port(f"up{node}", f"node{node}"), _port(f"down{node}", CORE)]
    for worker in range(layout.workers):
        own = f"{net.INTERFACE} address {net.hardware_address(worker)} netns {layout.namespace(worker)}"
        bridge = f"node{layout.node_of(worker)}" if layout.joined else CORE
        lines += [f"link add w{worker} type veth peer name {own}", _port(f"w{worker}", bridge)]
    return lines


def worker_lines(layout: net.NetworkLayout, worker: int) -> list[str]:
    """Return the commands that set up a worker's interface, with static neighbours so that no ARP traffic flows."""
    shaping = layout.shaping
    sent = f"rto_min {_RTO_MIN} initcwnd {shaping.window_segments}"
    received = f"initrwnd {shaping.window_segments} window {shaping.window_bytes}"
    return [
        "link set lo up",
        f"link set {net.INTERFACE} mtu {net.MTU_BYTES} gso_max_segs {shaping.segments} up",
        f"address add {net.address(worker)}/24 dev {net.INTERFACE} noprefixroute",
        f"route add {net.NETWORK} dev {net.INTERFACE} {sent} {received}",
        *(
            f"neighbour add {net.address(other)} lladdr {net.hardware_address(other)} dev {net.INTERFACE} nud permanent"
            for other in range(layout.workers)
            if other != worker
        ),
    ]


def switch_buckets(layout: net.NetworkLayout) -> list[str]:
    """Return what shapes what workers receive, and uplinks both ways, in the namespace of the switches."""
    rates_Bps = {f"w{worker}": layout.rate_Bps for worker in range(layout.workers)}
    for node in range(layout.nodes if layout.joined else 0):
        rates_Bps |= {f"up{node}": layout.uplink_Bps, f"down{node}": layout.uplink_Bps}
    return [line for port, rate_Bps in rates_Bps.items() for line in bucket(port, rate_Bps, layout.shaping)]


def switch_settings() -> dict[str, str]:
    """Return the settings of the switches' namespace, by their path below /proc/sys/net."""
    processors = _all_processors(os.cpu_count() or 1)
    return {path: value.format(processors=processors) for path, value in _KERNEL["switch"].items()}


def _all_processors(number: int) -> str:
    """Return the mask of all processors, as the kernel writes it.

    >>> _all_processors(2), _all_processors(40)
    ('3', 'ff,ffffffff')
    """
    words = [min(number - first, 32) for first in range(0, number, 32)]
    return ",".join(f"{2**bits - 1:x}" for bits in reversed(words))


def _bridge(name: str) -> tuple[str, str]:
    return f"link add {name} type bridge mcast_snooping 0", f"link set {name} up"


def _port(name: str, bridge: str) -> str:
    return f"link set {name} mtu {net.MTU_BYTES} master {bridge} up"


def bucket(interface: str, rate_Bps: float, shaping: net.TrafficShaping) -> list[str]:
    """Return what shapes what leaves by an interface; nothing where its rate is infinite."""
    if math.isinf(rate_Bps):
        return []
    # In tc's words bps are bytes per second.
    kept = f"burst {shaping.burst_bytes(rate_Bps)}b limit {shaping.queue_bytes}b"
    return [f"qdisc add dev {interface} root tbf rate {round(rate_Bps)}bps {kept}"]


def check_privileges() -> None:
    """Refuse where this process may not make testbeds, or the tools are missing."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise S2SimError(f"a testbed needs {' and '.join(missing)}: install iproute2")
    if not Path("/proc/self/ns/net").exists():
        raise S2SimError("a testbed needs Linux with network namespaces: this kernel has none")
    lines = Path("/proc/self/status").read_text("ascii", errors="replace").splitlines()
    held = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    lacking = [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]
    if lacking:
        raise S2SimError(f"a testbed needs root: this process lacks {' and '.join(lacking)}; call it with sudo")


def run_tool_batch(tool: str, lines: Sequence[str], *, namespace: str | None = None) -> None:
    """Let ``ip`` or ``tc`` do what lines say, all in one process; see `run_tool`."""
    if lines:
        run_tool(tool, "-batch", "-", namespace=namespace, lines="\n".join(lines) + "\n")


def run_tool(tool: str, *arguments: str, namespace: str | None = None, lines: str = "") -> str:
    """Return what ``ip`` or ``tc`` prints when run in a namespace; `S2SimError` with its message if it fails."""
    done = subprocess.run(  # noqa: S603  (one thread; tools of the system, lines of our own making)
        [tool, *([] if namespace is None else ["-netns", namespace]), *arguments],
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        # Ctrl-C comes to us alone, who undo what was begun; if we are killed, nothing more is made behind us.
        start_new_session=True,
        preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    if done.returncode:
        said = " ".join(done.stderr.split())
        lacking = next((what for text, what in _KERNEL["lacking"].items() if text in said), None)
        if lacking is not None:
            raise S2SimError(f"a testbed needs {lacking}, which this kernel lacks: {said}")
        raise S2SimError(f"{tool} failed while a testbed was made, looked at or removed: {said}")
    return done.stdout


def write_settings(settings: Mapping[str, Mapping[str, str]]) -> None:
    """Write settings by namespace and path below /proc/sys/net, without those that this kernel does not know."""

    def write_all() -> None:
        for namespace, values in settings.items():
            with (NAMESPACES / namespace).open("rb") as opened:
                if _LIBC.setns(opened.fileno(), _CLONE_NEWNET):
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), str(NAMESPACES / namespace))
            for path, value in values.items():
                setting = Path("/proc/sys/net") / path
                if setting.exists():
                    setting.write_text(value, "ascii")

    try:
        # What /proc/sys/net shows is that of the thread's namespace, and this thread ends with its task.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(write_all).result()
    except OSError as error:
        raise S2SimError(f"cannot set {error.filename or 'a namespace'} for a testbed: {error.strerror}") from None


def list_testbed_names() -> tuple[str, ...]:
    """Return the names of all testbeds, also of those that are half made or half removed."""
    return tuple(sorted({name for name in map(net.testbed_of, _all_namespaces()) if name is not None}))


def find_testbed(name: str) -> net.NetworkLayout | None:
    """Return the layout of a testbed, None if it is incomplete; `OptionError` if there is none of that name."""
    check_privileges()
    spaces = _namespaces_of(name)
    layout = layout_from(name, _alias(net.switch_of(name), CORE))
    return layout if layout is not None and set(layout.namespaces) == set(spaces) else None


def processes_in(name: str) -> tuple[int, ...]:
    """Return the numbers of the processes that run in a testbed."""
    return _processes(_namespaces_of(name))


def remove_testbed(name: str) -> int:
    """Remove a testbed and return the number of processes ended; `OptionError` if unknown, `S2SimError` on failure."""
    check_privileges()
    spaces = _namespaces_of(name)
    until_s = time.monotonic() + 10.0
    ended: set[int] = set()
    # What is ended may just have started another.
    while running := _processes(spaces):
        if os.getpid() in running:
            raise S2SimError(f"this process runs in testbed {name} itself: remove it from outside")
        if time.monotonic() > until_s:
            raise S2SimError(f"processes in testbed {name} do not end: {', '.join(map(str, running))}")
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        ended.update(running)
        time.sleep(0.02)
    # The namespace of the switches is the last, for as long as it is there nobody else takes the name.
    spaces = sorted(spaces, key=lambda space: space == net.switch_of(name))
    run_tool_batch("ip", [f"netns delete {space}" for space in spaces])
    return len(ended)


def _all_namespaces() -> list[str]:
    return sorted(path.name for path in NAMESPACES.iterdir()) if NAMESPACES.is_dir() else []


def _namespaces_of(name: str) -> list[str]:
    spaces = [space for space in _all_namespaces() if net.testbed_of(space) == name]
    if not spaces:
        raise OptionError(f"there is no testbed {name!r}{suggest_nearest(name, list_testbed_names())}")
    return spaces


def _processes(spaces: list[str]) -> tuple[int, ...]:
    def identities(paths: Iterable[Path]) -> Iterator[tuple[int, int]]:
        """Yield device and inode of those that are there, and may be looked at."""
        for path in paths:
            with suppress(OSError):
                status = path.stat()
                yield status.st_dev, status.st_ino

    within = set(identities(NAMESPACES / space for space in spaces))
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    # One may have ended meanwhile, or show nothing because it has.
    return tuple(sorted(each for each in processes if within & set(identities([Path(f"/proc/{each}/ns/net")]))))


def build_testbed(layout: net.NetworkLayout, *, owner: str = "") -> None:
    """Create a testbed, removing its parts on failure; `OptionError` if it exists, `S2SimError` if not permitted.

    One whose owner, a process as `_process_note` writes it, was killed before it removed it is made anew.
    """
    check_privileges()
    if layout.name in list_testbed_names():
        process, _, _ = (note := _alias(layout.switch, "lo")).partition(" ")
        if not process.isdecimal():
            raise OptionError(
                f"there is a testbed {layout.name}: take another --name, or remove it with s2sim dev testbed down "
                f"{layout.name}"
            )
        if _process_note(int(process)) == note:
            raise OptionError(f"process {process} measures on testbed {layout.name}: wait until it has ended")
        remove_testbed(layout.name)
    # Of two that make the same testbed at once, one alone gets this namespace, and the other leaves it be.
    run_tool("ip", "netns", "add", layout.switch)
    try:
        if owner:
            run_tool("ip", "link", "set", "lo", "alias", owner, namespace=layout.switch)
        workers = range(layout.workers)
        run_tool_batch("ip", [f"netns add {layout.namespace(worker)}" for worker in workers])
        room = layout.shaping.room_bytes
        own = switch_settings() | {path: value.format(room=room) for path, value in _KERNEL["worker"].items()}
        write_settings({layout.switch: switch_settings(), **{layout.namespace(worker): own for worker in workers}})
        run_tool_batch("ip", switch_lines(layout), namespace=layout.switch)
        run_tool_batch("tc", switch_buckets(layout), namespace=layout.switch)
        own_buckets = bucket(net.INTERFACE, layout.rate_Bps, layout.shaping)
        for worker, namespace in enumerate(map(layout.namespace, workers)):
            run_tool_batch("ip", worker_lines(layout, worker), namespace=namespace)
            run_tool_batch("tc", own_buckets, namespace=namespace)
        # Last of all: a testbed without it was left half made.
        run_tool("ip", "link", "set", CORE, "alias", layout_text(layout), namespace=layout.switch)
    except BaseException:
        remove_testbed(layout.name)
        raise


@contextmanager
def temporary_testbed(layout: net.NetworkLayout) -> Iterator[net.NetworkLayout]:
    """Make a testbed for as long as a block runs, and remove it however that ends."""
    build_testbed(layout, owner=_process_note(os.getpid()))
    try:
        yield layout
    finally:
        remove_testbed(layout.name)


def _alias(switch: str, interface: str) -> str:
    try:
        (shown,) = json.loads(run_tool("ip", "-json", "link", "show", interface, namespace=switch))
    except (S2SimError, ValueError):
        return ""
    return str(shown.get("ifalias", ""))


def _process_note(process: int) -> str:
    """Return the number of a process and the clock tick at which it began, "" if it has ended."""
    try:
        return f"{process} {Path(f'/proc/{process}/stat').read_text('ascii', 'replace').rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return ""
