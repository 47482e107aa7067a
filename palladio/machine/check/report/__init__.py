"""The words of reports: parts of buffers, steps of loops, chains of synchronisation."""
