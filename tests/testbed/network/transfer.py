"""One end of a transfer, `send ADDRESS BYTES` or `receive SENDERS`; prints when it began or ended."""

import socket
import sys
import time

PORT = 5000


def tell(text):
    print(text, flush=True)  # noqa: T201  (it is what this program is for)


def send(address, size):
    with socket.create_connection((address, PORT)) as connection:
        tell("ready")
        sys.stdin.readline()
        tell(time.monotonic())
        connection.sendall(bytes(size))


def receive(senders):
    with socket.create_server(("", PORT)) as server:
        tell("ready")
        for connection in [server.accept()[0] for _ in range(senders)]:
            with connection:
                while connection.recv(2**20):
                    pass
    tell(time.monotonic())


if sys.argv[1] == "send":
    send(sys.argv[2], int(sys.argv[3]))
else:
    receive(int(sys.argv[2]))
