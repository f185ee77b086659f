"""The accuracy watch of a server: it finds drift in live traffic and who is to blame for it.

Begin with ``watch``. ``score_drift`` compares scores with the exact model, ``input_drift`` compares
inputs with a reference, and ``labels`` compares outcomes with both.
"""
