"""The lab: a network on one machine, made of hosts in namespaces and rate-limited links.

::

    with Lab(hosts=2, mbps=200) as lab:
        result = lab.run([sys.executable, "train.py"], pin_cores=True, timeout_s=600)
    result.check()
    print(result.seconds, result.hosts[0].bytes_sent)

Nothing appears outside: no interface, no named namespace, no route. Everything lives in one keeper
process and goes with it, whatever ends the lab. Begin with ``lab``, which starts a ``job``; the
``keeper`` builds the ``network``, with ``faults`` or an aggregator (``aggregation``) where asked.
"""

from laconic.lab.faults import Faults
from laconic.lab.job import Job
from laconic.lab.lab import Lab
from laconic.lab.needs import Fact, check
from laconic.lab.result import HostResult, Result

__all__ = ["Fact", "Faults", "HostResult", "Job", "Lab", "Result", "check"]
