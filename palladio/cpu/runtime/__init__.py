"""The runtime of compiled code: the processor, machine code and its store, recycled memory, workers, callbacks."""
