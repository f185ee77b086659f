"""The cost model: from measured constants to seconds of a step.

Begin with ``link``, the formulas that everybody calls, and ``load``, the cost of a table's place.
``measure`` finds the constants of this machine.
"""
