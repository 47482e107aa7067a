"""The edges of happened-before between threads and asynchronous operations, a module for each kind."""
