import os

# PyTorch's TCPStore asks for the name of ::ffff:127.0.0.1 at each connection, and so each new group does. Where the name
# server does not answer, the resolver waits for 5 s, twice; a test of several groups then seemed to hang (docs/troubleshooting.md).
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
