"""Codes and ids as bits."""
