"""What decides how much to compress: settings, policies, guard and economy.

They decide by evidence that others hand in.
"""
