"""A client of the rendezvous store, written from the protocol in src/net/store/store_message.h."""
import socket
import struct

SET, GET, ADD = 0, 1, 3
VERSION = 2
DONE = 0


class Store:
    def __init__(self, address, token):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        self.number = 0
        self.socket.sendall(struct.pack("<4sBBHQ", b"TLWS", VERSION, 0, 0, token))
        magic, version, status, _, _ = struct.unpack("<4sBBHQ", self._read(16))
        assert magic == b"TLWS" and version == VERSION
        if status != 0:
            raise ConnectionError(f"refused: {status}")

    def _read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the store closed the connection")
            data += more
        return data

    def _ask(self, what, key, value=b"", wait_ms=0, delta=0):
        self.number += 1
        body = struct.pack("<BBHIIIIq", what, 0, len(key), self.number, wait_ms, len(value), 0, delta)
        body += key.encode() + value
        self.socket.sendall(struct.pack("<I", len(body)) + body)
        size, = struct.unpack("<I", self._read(4))
        reply = self._read(size)
        outcome, number, length = struct.unpack("<B3xII", reply[:12])
        assert number == self.number and length == len(reply) - 12
        if outcome != DONE:
            raise KeyError(f"{key}: outcome {outcome}")
        return reply[12:]

    def set(self, key, value):
        self._ask(SET, key, value)

    def get(self, key, wait_ms):
        return self._ask(GET, key, wait_ms=wait_ms)

    def add(self, key, delta):
        return int(self._ask(ADD, key, delta=delta))
