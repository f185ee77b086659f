"""In-network aggregation: workers send integers once, the network adds and sends back the sum.

====================== ==================================================================
file                   what it holds
====================== ==================================================================
client                 ``InNetwork``: one worker's end
server                 the aggregator in user space
xdp                    the aggregator in the kernel, on the ports of a switch
aggregator             what both have in common: jobs come and go, counters
job                    ``host:port``; 64-bit names of jobs
packet.h switch.bpf.c  the packet, for every language; the program for the kernel
====================== ==================================================================

The packets and the rules of the protocol: ``docs/formats/aggregation.md``.
"""

from laconic.reduce.network.aggregator import Aggregator, Counters
from laconic.reduce.network.client import InNetwork
from laconic.reduce.network.server import UserAggregator
from laconic.reduce.network.xdp import XdpAggregator

__all__ = ["Aggregator", "Counters", "InNetwork", "UserAggregator", "XdpAggregator"]
