"""What is timed between the processes of a testbed, how, and one setting after the other."""
