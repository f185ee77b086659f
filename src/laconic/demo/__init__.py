"""``laconic demo``: plain training against Laconic's, over a wire of ordinary speed.

========= ====================================================================
module    what it holds
========= ====================================================================
measure   steps in turns, a pass over the data, and what they sent and learned
rank      what each host runs, and the settings of every run
run       starts the hosts, and makes a result for the report of what they say
========= ====================================================================

Benchmarks measure training with ``measure`` too.
"""
