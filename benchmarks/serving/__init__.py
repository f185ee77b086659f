"""Serving: throughput, latency, size and accuracy of whole models, against what you would use instead; and a server under overload."""
