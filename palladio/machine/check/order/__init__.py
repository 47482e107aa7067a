"""What orders threads and asynchronous operations, a module for each way: the edges of happened-before."""
