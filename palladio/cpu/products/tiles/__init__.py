"""Matrix products on tile registers: their micro-kernels, few rows in place, and float32 as pieces of bfloat16."""
