"""Rows and layers in few bits."""
