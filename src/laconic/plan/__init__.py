"""Where tables and rows should live, and how long a step will take then.

``access`` counts lookups (``laconic profile``), ``solve`` places tables (``laconic plan``),
``plan_file`` has the file with hot rows and cold tables, and ``simulate`` predicts steps of
clusters of any size (``laconic simulate``). Begin with ``solve.planner``.
"""
