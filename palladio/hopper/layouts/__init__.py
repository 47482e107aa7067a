"""Where the elements of arrays are: in the registers of threads, and in shared memory."""
