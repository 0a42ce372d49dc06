"""Bytes that must never change: what is on disks and wires already."""
