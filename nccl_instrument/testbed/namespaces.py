"""Real links: one network namespace per node, a veth pair per NIC, a bridge as the switch, tbf as the wire's speed.

Needs root. `ip link set down` and a tbf rate are then faults of the kernel's own making. The host's end of each pair
stays outside, so agents see the NIC without entering a namespace; its receive counters are the NIC's transmit
counters, hence the folder of links with the names swapped. Names come from the process id; the switch has no address
and nothing is routed, so two testbeds never meet.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from .layout import Layout, Nic
from .links import STATISTICS, LinkError, write_nic_file

SUBNET = "10.77"
MTU = 9000
BURST_BYTES = 64 * 1024
QUEUE_BYTES = 4 * 1024 * 1024  # never drops: in-flight data is bounded by credits
RTO_MAX_MS = 2000  # TCP's back-off would delay recovery by as much as the outage lasted
PROBES_MAX = 255  # a NIC that is down sends nothing, and a socket gives up after so many tries to: some eight minutes

NAMESPACE_SETTINGS = {
    # Two NICs of a node are in one subnet: each must answer for itself only.
    "net/ipv4/conf/all/arp_ignore": 1,
    "net/ipv4/conf/all/arp_announce": 2,
    "net/ipv4/conf/all/rp_filter": 0,
    "net/ipv4/conf/default/rp_filter": 0,
    "net/ipv4/tcp_slow_start_after_idle": 0,
    "net/ipv4/tcp_rto_max_ms": RTO_MAX_MS,
    "net/ipv4/tcp_retries2": PROBES_MAX,
    "net/ipv6/conf/all/disable_ipv6": 1,
    "net/ipv6/conf/default/disable_ipv6": 1,
}


def namespace_name(pid: int, node: int) -> str:
    return f"dg{pid}n{node}"


def link_name(pid: int, nic: Nic) -> str:
    return f"dg{pid}n{nic.node}i{nic.name.removeprefix('nic')}"


def switch_name(pid: int) -> str:
    return f"dg{pid}br"


def run_command(*words: str, stdin: str | None = None) -> None:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LinkError(f"“{' '.join(words)}” failed: {done.stderr.strip().splitlines()[-1:] or 'no reason given'}")


class NamespaceLinks:
    is_paced = False

    def __init__(self, layout: Layout, pid: int, link_bytes_per_s: int, sysfs_root: Path) -> None:
        self.layout = layout
        self.pid = pid
        self.bytes_per_s = link_bytes_per_s
        self.sysfs_root = sysfs_root

    def create(self) -> None:
        self._root_batch(
            [f"link add {switch_name(self.pid)} mtu {MTU} type bridge stp_state 0 forward_delay 0"]
            + [f"netns add {namespace_name(self.pid, node)}" for node in range(self.layout.n_nodes)]
        )
        for node in range(self.layout.n_nodes):
            self._write_settings(node)
        self._root_batch([line for nic in self.layout.nics for line in self._host_lines(nic)])
        self._root_batch([f"link set {switch_name(self.pid)} up"])
        for node in range(self.layout.n_nodes):
            lines = [line for nic in self.layout.nics if nic.node == node for line in self._node_lines(nic)]
            run_command("ip", "-n", namespace_name(self.pid, node), "-batch", "-", stdin="\n".join(lines))
        for nic in self.layout.nics:
            self._shape(nic, "add", 1.0)
            self._link_sysfs(nic)

    def _root_batch(self, lines: list[str]) -> None:
        run_command("ip", "-batch", "-", stdin="\n".join(lines))

    def _write_settings(self, node: int) -> None:
        """Settings the running kernel lacks are skipped: they only make recovery quicker."""
        script = "; ".join(f"echo {value} > /proc/sys/{key}" for key, value in NAMESPACE_SETTINGS.items())
        words = ["ip", "netns", "exec", namespace_name(self.pid, node), "sh", "-c", script]
        subprocess.run(words, capture_output=True, check=False)

    def _host_lines(self, nic: Nic) -> list[str]:
        host, namespace = link_name(self.pid, nic), namespace_name(self.pid, nic.node)
        return [
            f"link add {host} mtu {MTU} type veth peer name {nic.name} mtu {MTU} netns {namespace}",
            f"link set {host} master {switch_name(self.pid)} up",
        ]

    def _node_lines(self, nic: Nic) -> list[str]:
        address = f"addr add {self.address_of(nic)}/16 dev {nic.name} noprefixroute"
        return [address, f"link set {nic.name} up", f"route add {self._route(nic)}"]

    def _route(self, nic: Nic) -> str:
        """quickack: an acknowledgement stands for the receiving NIC's, which does not wait for company."""
        metric = 10 + int(nic.name.removeprefix("nic"))
        return f"{SUBNET}.0.0/16 dev {nic.name} src {self.address_of(nic)} metric {metric} quickack 1"

    def _shape(self, nic: Nic, verb: str, share: float) -> None:
        rate = max(8_000, int(self.bytes_per_s * 8 * share))
        tbf = ["root", "tbf", "rate", f"{rate}bit", "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES)]
        namespace = namespace_name(self.pid, nic.node)
        run_command("tc", "-n", namespace, "qdisc", verb, "dev", nic.name, *tbf)
        run_command("tc", "qdisc", verb, "dev", link_name(self.pid, nic), *tbf)

    def _link_sysfs(self, nic: Nic) -> None:
        kernel = Path("/sys/class/net") / link_name(self.pid, nic)
        folder = self.sysfs_of(nic)
        (folder / "statistics").mkdir(parents=True)
        for name in ("operstate", "carrier", "address", "mtu"):
            (folder / name).symlink_to(kernel / name)
        for name in STATISTICS:
            swapped = name.replace("rx", "tx") if name.startswith("rx") else name.replace("tx", "rx")
            (folder / "statistics" / name).symlink_to(kernel / "statistics" / swapped)
        write_nic_file(folder, "speed", round(self.bytes_per_s * 8 / 1e6))

    def remove(self) -> None:
        remove_links(self.pid, self.layout.n_nodes, self.layout.n_nics_per_node)

    def address_of(self, nic: Nic) -> str:
        return f"{SUBNET}.{nic.node}.{10 + int(nic.name.removeprefix('nic'))}"

    def device_of(self, nic: Nic) -> str:
        return nic.name

    def namespace_file(self, node: int) -> str | None:
        return f"/run/netns/{namespace_name(self.pid, node)}"

    def sysfs_of(self, nic: Nic) -> Path:
        return self.sysfs_root / f"node{nic.node}" / nic.name

    def set_up(self, nic: Nic, is_up: bool) -> None:
        namespace = namespace_name(self.pid, nic.node)
        run_command("ip", "-n", namespace, "link", "set", nic.name, "up" if is_up else "down")
        if is_up:  # going down took the route along
            run_command("ip", "-n", namespace, "route", "replace", *self._route(nic).split())

    def set_share(self, nic: Nic, share: float) -> None:
        self._shape(nic, "change", share)

    def refresh(self) -> None:
        """Nothing to do: the kernel keeps its own counters."""


def remove_links(pid: int, n_nodes: int, n_nics_per_node: int) -> None:
    """Removes whatever exists of a testbed's links; host ends first, since a namespace lives as long as its ranks."""
    names = [f"dg{pid}n{node}i{nic}" for node in range(n_nodes) for nic in range(n_nics_per_node)]
    lines = [f"link del {name}" for name in [*names, switch_name(pid)] if Path(f"/sys/class/net/{name}").exists()]
    lines += [
        f"netns del {namespace_name(pid, node)}"
        for node in range(n_nodes)
        if Path(f"/run/netns/{namespace_name(pid, node)}").exists()
    ]
    subprocess.run(["ip", "-force", "-batch", "-"], input="\n".join(lines), text=True, capture_output=True, check=False)
