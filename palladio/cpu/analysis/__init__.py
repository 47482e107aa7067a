"""Facts about programs that the compiler for CPUs goes by: work estimates, initialisation, dependences."""
