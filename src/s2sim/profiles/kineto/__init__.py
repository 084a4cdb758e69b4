"""Reading a trace of PyTorch's profiler: when each gradient was ready, without holding the file in memory."""
