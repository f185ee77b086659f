"""What decides how much to compress: settings, policies, guard and economy.

They decide by evidence that others hand in.
"""

BUDGET = 0.001
"""Harm that is allowed where nobody says how much: 0.1 % of the loss."""

AIM = 0.6
"""Share of a budget that bounds are chosen for, because what comes true scatters."""

MOST_ROWS_ERROR, MOST_GRADIENTS_ERROR = 0.05, 0.05
"""Mean square error beside the mean square of what is sent, up to which bounds are taken.

Noise of the size of the signal does more than curvature knows of: a rare row arrives as zero and is
overtrained, and Adagrad's steps get shorter. Design note 0011 has what that cost.
"""
