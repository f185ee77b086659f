"""Models in low precision: ``laconic quantize``.

Begin with ``formats``: how tables and layers are stored, and the artifact that a server reads. The
``search`` chooses a precision for each of them, within a budget of accuracy.
"""
