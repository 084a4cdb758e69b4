"""Any traffic: transfers from a file, through one cluster's network."""
