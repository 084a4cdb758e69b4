"""What NCCL, RCCL, MPI and Gloo execute for a collective, and what their software adds."""
