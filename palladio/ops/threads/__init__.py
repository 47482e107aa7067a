"""Operations of concurrent threads: launches, barriers, semaphores, asynchronous copies, the tensor cores."""
