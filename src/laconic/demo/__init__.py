"""``laconic demo``: plain training against Laconic's, over an ordinary network.

========= ====================================================================
module    what it holds
========= ====================================================================
run       starts the hosts and makes the result for the report; begin here
rank      what each host runs, and the settings of every run
measure   times steps and measures a pass over the data
========= ====================================================================

Benchmarks measure training with ``measure`` too.
"""
