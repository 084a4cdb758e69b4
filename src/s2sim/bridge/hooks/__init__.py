"""Any reducer as a communication hook of PyTorch's DistributedDataParallel."""
