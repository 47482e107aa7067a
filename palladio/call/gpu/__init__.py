"""The GPU dialect's own calls: `palladio.gpu.kernel`, its compiler parameters, and the choice of the simulator."""
