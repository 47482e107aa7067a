"""Below compiled code: the processor, machine code and its store, memory that is used again, workers, callbacks."""
