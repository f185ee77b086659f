"""The network of a lab: a bridge in a namespace of its own, and one veth pair per host.

::

    host0: eth0 =====tbf=====> port0 :switch: port1 <=====tbf===== eth0 :host1
                <====tbf======                      ======tbf====>

Each end limits what leaves it, so both directions have the full bandwidth at the same time. Only
descriptors of this process hold the namespaces: they are gone when it is gone. ``faults.py`` draws
the fault stage that a lab with faults has between links and ports.
"""

from __future__ import annotations

import os
from typing import Any

from pyroute2 import IPRoute

from laconic.lab import linux
from laconic.lab.faults import Direction, Faults, FaultStage
from laconic.lab.hosts import AGGREGATOR_ADDRESS, INTERFACE, addresses
from laconic.lab.steps import step
from laconic.lab.token_bucket import TokenBucket, link_limit

_HANDLE = 0x10000
_ROOT = 0xFFFFFFFF
_NO_LIMIT_PIECE_BYTES = 65536
_LANE_SLOWER = 4
_UNLIMITED_LANE = TokenBucket(500)
_ETHERNET_BYTES = 14
_PACKET_BYTES = 1600  # a full one, and no second
# an interface without an IPv6 address sends nothing by itself, so counters show the job alone
_NO_IPV6_ADDRESS = {"attrs": [("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", 1)]})]}


class Network:
    """Hosts, switch and links, in namespaces made by this process; it ends up in the switch's."""

    def __init__(self, hosts: int, faults: Faults | None = None) -> None:
        with step("network namespaces"):
            linux.unshare(linux.CLONE_NEWNET)
            switch_space = os.open("/proc/self/ns/net", os.O_RDONLY)
            self._switch = IPRoute()
            self.namespaces: list[int] = []
            self._inside: list[Any] = []
            for _ in range(hosts):
                linux.unshare(linux.CLONE_NEWNET)
                self.namespaces.append(os.open("/proc/self/ns/net", os.O_RDONLY))
                self._inside.append(IPRoute())
            linux.enter(switch_space)
        with step("bridge"):
            self._switch.link("add", ifname="switch", kind="bridge")
            bridge = self._switch.link_lookup(ifname="switch")[0]
            self._switch.link("set", index=bridge, state="up", IFLA_AF_SPEC=_NO_IPV6_ADDRESS)
        self._bridge = bridge
        self._ports: list[int] = []
        self._cards: list[int] = []
        self._lanes: list[int] = []
        self._directions: list[Direction] = []
        self.bridge_ports: list[int] = []
        """Interfaces where packets of hosts enter the bridge."""
        for host in range(hosts):
            self._connect(host, has_faults=faults is not None)
        if faults is not None:
            self._fault_stage = FaultStage(faults, self._directions)
        with step("addresses"):
            for host, address in enumerate(addresses(hosts)):
                self._address(host, address)
        self._limited = False
        self._has_xdp = False

    def _connect(self, host: int, *, has_faults: bool) -> None:
        inside, namespace = self._inside[host], self.namespaces[host]
        name = f"cable{host}" if has_faults else f"port{host}"
        with step("veth"):
            peer = {"ifname": INTERFACE, "net_ns_fd": namespace}
            self._switch.link("add", ifname=name, kind="veth", peer=peer)
            port = self._switch.link_lookup(ifname=name)[0]
            card = inside.link_lookup(ifname=INTERFACE)[0]
            self._switch.link("set", index=port, IFLA_AF_SPEC=_NO_IPV6_ADDRESS)
            inside.link("set", index=card, IFLA_AF_SPEC=_NO_IPV6_ADDRESS)
        bridge_port = self._add_fault_stage(host, port) if has_faults else port
        with step("bridge"):
            self._switch.link("set", index=bridge_port, master=self._bridge)
        self._ports.append(port)
        self._cards.append(card)
        self.bridge_ports.append(bridge_port)

    def _add_fault_stage(self, host: int, cable: int) -> int:
        """Connect the fault stage of a host; return the port behind it."""
        with step("veth"):
            plug, port = self._pair(f"plug{host}", f"port{host}")
            lane, lane_exit = self._pair(f"lane{host}", f"exit{host}")
        self._directions += [
            Direction(cable, plug, lane, lane_exit),
            Direction(plug, cable, lane, lane_exit),
        ]
        self._lanes.append(lane)
        return port

    def _pair(self, name: str, peer: str) -> tuple[int, int]:
        """Add a veth pair to the switch's namespace."""
        self._switch.link("add", ifname=name, kind="veth", peer={"ifname": peer})
        first, second = (self._switch.link_lookup(ifname=end)[0] for end in (name, peer))
        for index in (first, second):
            self._switch.link("set", index=index, state="up", IFLA_AF_SPEC=_NO_IPV6_ADDRESS)
        return first, second

    def add_aggregator(self, kind: str) -> None:
        """Give the switch itself an address, for hosts to send to."""
        with step("addresses"):
            self._switch.addr("add", index=self._bridge, address=AGGREGATOR_ADDRESS, prefixlen=24)
        # a port with XDP counts what it receives without the header of Ethernet
        self._has_xdp = kind == "xdp" and self._ports == self.bridge_ports

    def _address(self, host: int, address: str) -> None:
        inside = self._inside[host]
        inside.link("set", index=inside.link_lookup(ifname="lo")[0], state="up")
        inside.addr("add", index=self._cards[host], address=address, prefixlen=24)
        inside.link("set", index=self._cards[host], state="up")
        self._switch.link("set", index=self._ports[host], state="up")

    def _ends(self) -> list[tuple[Any, int]]:
        ends = [(self._switch, port) for port in self._ports]
        return ends + list(zip(self._inside, self._cards, strict=True))

    def set_mbps(self, mbps: float | None) -> None:
        """Limit every link in both directions, or lift the limit; queued packets stay queued."""
        bucket = link_limit(mbps)
        with step("tbf"):
            for netlink, index in self._ends():
                piece = _NO_LIMIT_PIECE_BYTES if bucket is None else bucket.piece_bytes
                netlink.link("set", index=index, gso_max_size=piece)
                if bucket is not None:
                    _limit(netlink, index, bucket, bucket.burst_bytes)
                elif self._limited:
                    netlink.tc("del", index=index, parent=_ROOT)
            slow = _UNLIMITED_LANE if bucket is None else TokenBucket(bucket.mbps / _LANE_SLOWER)
            for lane in self._lanes:
                _limit(self._switch, lane, slow, _PACKET_BYTES)
        self._limited = bucket is not None

    def set_link(self, host: int, *, up: bool) -> None:
        """Take the link of a host down, or up again."""
        self._switch.link("set", index=self._ports[host], state="up" if up else "down")

    def counters(self) -> list[tuple[int, int]]:
        """Return the bytes that every host has sent and received, counted at its switch port."""
        found = []
        for port in self._ports:
            statistics = self._switch.get_links(port)[0].get_attr("IFLA_STATS64")
            uncounted = _ETHERNET_BYTES * statistics["rx_packets"] if self._has_xdp else 0
            found.append((statistics["rx_bytes"] + uncounted, statistics["tx_bytes"]))
        return found


def _limit(netlink: Any, index: int, bucket: TokenBucket, burst: int) -> None:
    netlink.tc(
        "replace",
        "tbf",
        index=index,
        handle=_HANDLE,
        rate=f"{round(bucket.mbps * 1e6)}bit",
        burst=burst,
        limit=bucket.queue_bytes,
    )
