"""Training: settings, loop, evaluation, checkpoints, and ``run`` that wires them together."""
