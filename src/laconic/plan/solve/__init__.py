"""The solver behind ``laconic plan``: places for all tables that make a step short.

Begin with ``planner``, which says in which order the other modules work.
"""
