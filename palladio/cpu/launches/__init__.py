"""Launches on the CPU: threads as coroutines, their scheduler, and the operations by which they synchronise."""
