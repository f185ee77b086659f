"""Laconic inside other people's training loops."""
