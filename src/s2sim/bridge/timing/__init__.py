"""Recording compute profiles: hooks that tell when each layer ran and each gradient was ready."""
