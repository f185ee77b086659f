"""A network on one machine: hosts in network namespaces, joined by a switch with rate-limited links.

::

    with Lab(hosts=2, rate="200mbit") as lab:
        result = lab.run([sys.executable, "train.py"], pin_cores=True, timeout_s=600)
    result.check()
    print(result.seconds, result.hosts[0].bytes_sent)

Nothing appears outside: no interface, no named namespace, no route. What is made lives in one keeper
process and goes with it, whatever ends the lab.
"""

from laconic.lab.faults import Faults
from laconic.lab.job import Job
from laconic.lab.lab import Lab
from laconic.lab.needs import Fact, check
from laconic.lab.rate import Rate
from laconic.lab.result import HostResult, Result

__all__ = ["Fact", "Faults", "HostResult", "Job", "Lab", "Rate", "Result", "check"]
