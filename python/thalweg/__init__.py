"""Thalweg: the communication layer for distributed DNN training on plain Ethernet."""
