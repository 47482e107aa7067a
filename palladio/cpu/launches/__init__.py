"""Launches on the CPU: threads as coroutines, their scheduler, and their synchronising operations."""
