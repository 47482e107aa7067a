"""Layouts: the places of the elements of arrays, in the registers of threads and in shared memory."""
