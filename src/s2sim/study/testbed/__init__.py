"""What is measured on a testbed beside what is predicted of it, with constants that one of its settings tells."""
