"""Training benchmark: step time, accuracy and bytes of Laconic and of what it is compared with."""
