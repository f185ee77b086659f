"""Who the ranks are, and the messages between them.

Begin with ``world``: it opens a ``transport`` for each purpose. ``stages`` let one thread take
several ranks along.
"""
