"""``laconic demo``: plain training against Laconic's, over a wire of ordinary speed.

========= ====================================================================
module    what it holds
========= ====================================================================
setting   what is trained, and how: the settings of every run
measure   steps in turns, a pass over the data, and what they sent and learned
rank      what each host runs
run       starts the hosts, and makes a result for the report of what they say
========= ====================================================================

Benchmarks measure training with ``measure`` too.
"""
