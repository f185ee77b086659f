"""The precision search of ``laconic quantize``, the numeric debugger, and the refresh of a recipe.

Begin with ``run``: it leads from a ``workbench`` (model and held-out samples) over ``sensitivity``
(what each of the ``candidates`` costs and harms) and ``choose`` to the ``search``.
"""
