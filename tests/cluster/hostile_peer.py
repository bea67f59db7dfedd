#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hostile_peer.py ATTACK HOST PORTFILE: somebody without the step's key, on the
controller's port.

The port is read from PORTFILE as soon as that has one; "replay" listens to the
loopback device before. Exits with 0 when the attack was carried out and got
nothing but what a stranger may get; what it says goes to stderr.
"""
import os
import random
import resource
import socket
import struct
import sys
import time

MAGIC = 0x44445043
HELLO, CHALLENGE, AUTH = 1, 2, 3


def frame(payload):
    return struct.pack(">I", len(payload)) + payload


def hello(job=1, step=0, name=b"n1"):
    # As core/ddp_wire.h has it.
    return frame(struct.pack(">BIBII", HELLO, MAGIC, 1, job, step)
                 + struct.pack(">H", len(name)) + name + os.urandom(32))


def port_of(path, idle=lambda: time.sleep(0.05)):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            with open(path) as f:
                return int(f.read())
        except (OSError, ValueError):
            idle()
    sys.exit("no port")


def dial(at):
    s = socket.create_connection(at, timeout=5)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def drain(s, limit=10):
    """All that comes until the peer closes; an error where it does not."""
    data = b""
    s.settimeout(limit)
    try:
        while True:
            more = s.recv(4096)
            if not more:
                return data
            data += more
            if len(data) > 1 << 20:
                sys.exit("it talks too much to a stranger")
    except ConnectionError:
        return data
    except socket.timeout:
        sys.exit("a stranger's connection stays open")


def send(s, data):
    try:
        s.sendall(data)
    except OSError:
        pass


def stranger(data, what):
    """A stranger sees at most one frame, the challenge."""
    if not data:
        return
    (n,) = struct.unpack(">I", data[:4])
    if len(data) > 4 + n or data[4] != CHALLENGE:
        sys.exit(f"{what}: was let in: {data[:40]!r}")


def garbage(at):
    rng = random.Random(1)
    texts = [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 64,
             frame(b""), frame(b"\0"), struct.pack(">I", 513) + b"x" * 513,
             struct.pack(">I", 0xffffffff), hello()[:-1] + b"xx",
             frame(bytes([AUTH]) + b"\0" * 32), frame(bytes([99]) * 40)]
    texts += [rng.randbytes(rng.randrange(1, 600)) for _ in range(200)]
    for text in texts:
        s = dial(at)
        send(s, text)
        s.shutdown(socket.SHUT_WR)
        stranger(drain(s), "garbage")
        s.close()


def half(at):
    """Half frames and no more; the controller must give up by itself."""
    all_ = []
    whole = hello()
    for n in (0, 1, 3, 4, 5, 20, len(whole) - 1):
        s = dial(at)
        send(s, whole[:n])
        all_.append(s)
    for s in all_:
        stranger(drain(s, 30), "half a frame")


def slow(at):
    s = dial(at)
    end = time.monotonic() + 30
    try:
        for byte in hello() + frame(b"x" * 400):
            s.send(bytes([byte]))
            time.sleep(0.2)
            if time.monotonic() > end:
                sys.exit("a slow sender is waited for without end")
    except OSError:
        return
    stranger(drain(s, 30), "slow")


def reflect(at):
    """The controller's own proof sent back, and other wrong ones."""
    for make in (lambda mac: mac, lambda mac: b"\0" * 32,
                 lambda mac: os.urandom(32)):
        s = dial(at)
        send(s, hello())
        s.settimeout(5)
        head = b""
        try:
            head = s.recv(4 + 1 + 64, socket.MSG_WAITALL)
        except OSError:
            pass
        if len(head) == 69:
            send(s, frame(bytes([AUTH]) + make(head[37:69])))
        if drain(s):
            sys.exit("a wrong proof was answered")


def sniff(at, path):
    """The bytes of one agent's connection to the controller."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
    raw.bind(("lo", 0))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
    raw.settimeout(0.02)
    seen = {}

    def one():
        try:
            p = raw.recv(65535)[14:]
        except socket.timeout:
            return
        tcp = p[(p[0] & 15) * 4:struct.unpack(">H", p[2:4])[0]]
        if p[9] != 6 or len(tcp) < 20:
            return
        sport, dport, seq = struct.unpack(">HHI", tcp[:8])
        data = tcp[(tcp[12] >> 4) * 4:]
        if data:
            seen.setdefault((dport, sport), {})[seq] = data
    print("listening", flush=True)
    port = port_of(path, one)
    # The step runs when the port is told: its greetings are over.
    for _ in range(20):
        one()
    for (dport, _), parts in seen.items():
        if dport == port:
            return (at, port), b"".join(parts[k] for k in sorted(parts))
    sys.exit("no agent was heard")


def replay(host, path):
    at, data = sniff(host, path)
    if struct.unpack(">I", data[5:9])[0] != MAGIC:
        sys.exit("what was heard is no HELLO")
    for cut in (len(data), 4 + struct.unpack(">I", data[:4])[0]):
        s = dial(at)
        send(s, data[:cut])
        s.shutdown(socket.SHUT_WR)
        stranger(drain(s), "replay")


def flood(at):
    """10,000 connections, as fast as they come."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 11000),) * 2)
    held, refused = [], 0
    for i in range(10000):
        s = socket.socket()
        s.setblocking(False)
        try:
            s.connect(at)
        except BlockingIOError:
            pass
        except OSError:
            refused += 1
        try:
            if i % 3 == 0:
                s.send(hello()[:random.randrange(80)])
        except OSError:
            pass
        held.append(s)
        if i % 500 == 499:
            time.sleep(0.05)
    print(f"{len(held)} connections, {refused} refused", file=sys.stderr)
    time.sleep(3)


def main():
    attack, host, path = sys.argv[1:]
    if attack == "replay":
        replay(host, path)
        return
    at = (host, port_of(path))
    {"garbage": garbage, "half": half, "slow": slow, "reflect": reflect,
     "flood": flood}[attack](at)


main()
