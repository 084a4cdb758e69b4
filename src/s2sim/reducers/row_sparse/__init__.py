"""Row-sparse layers: which layers and rows travel, how, and what that costs a GPU."""
