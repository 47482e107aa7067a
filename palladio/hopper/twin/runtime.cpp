// The whole runtime as one translation unit: it is compiled once.
#include "machine.cpp"
#include "shared.cpp"
#include "barriers.cpp"
#include "copies.cpp"
#include "products.cpp"
#include "warps.cpp"
#include "atomics.cpp"
#include "mathematics.cpp"
