"""Draws figures from plain data (draw), and checks that data (check)."""
