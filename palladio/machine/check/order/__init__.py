"""The happens-before edges between threads and asynchronous operations, one module for each kind."""
