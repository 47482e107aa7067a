"""Layouts: the mapping of array elements to the registers of threads and to shared memory."""
