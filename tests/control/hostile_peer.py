#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hostile_peer.py [OPTIONS] MODE HOST PORT: a peer that means no good, for a
controller's port.

    garbage      random bytes, a request of HTTP, and nothing at all
    half-frame   a frame that stops in the middle
    slow         a right HELLO, one byte a second
    huge-length  frames of 0, 513, 2^24 and 2^32 - 1 bytes
    version      a HELLO of another version
    wrong-key    the whole handshake with another key
    reflect      the controller's own proof sent back as ours
    silence      a right HELLO, then nothing
    replay       an agent's side of a handshake, recorded, once more
    flood        a right HELLO, then data without end
    many         thousands of connections, kept as long as they are let
    all          all of them at once, then many

Each connection must be closed by the controller within --seconds, without a
WELCOME. Prints one line for each (many: one line), and exits with 1 if one
was welcomed or still open, with 3 if the controller could not be reached.

replay needs a handshake: either --listen PORT, where an agent that dials us
is passed on to the controller (first connection only), or --key HEX, with
which we play the agent ourselves, for nothing else; do that only while the
step runs: before, a node that comes and goes fails the launch.
"""

import argparse
import concurrent.futures
import errno
import hashlib
import hmac
import os
import resource
import selectors
import socket
import struct
import sys
import time

HELLO, CHALLENGE, AUTH, WELCOME = 1, 2, 3, 4
VERSION, MAGIC = 1, 0x44445043


def frame(kind, data=b""):
    return struct.pack(">IB", len(data) + 1, kind) + data


def hello(args, version=VERSION, nonce=None):
    name = args.name.encode()
    return frame(HELLO, struct.pack(">IBIIH", MAGIC, version, args.job,
                                    args.step, len(name)) + name +
                 (nonce or os.urandom(32)))


def proof(key, role, said, nonce):
    return hmac.new(key, b"ddp" + bytes([VERSION]) + role + said + nonce,
                    hashlib.sha256).digest()


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Peer:
    """One connection; collects what the controller says."""

    def __init__(self, args):
        self.sock = socket.socket(family_of(args.host))
        self.sock.settimeout(args.seconds)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.start = time.monotonic()
        self.end = self.start + args.seconds
        self.data = b""
        self.sock.connect((args.host, args.port))

    def send(self, data):
        """False once the controller has closed."""
        try:
            self.sock.settimeout(max(0.01, self.end - time.monotonic()))
            self.sock.sendall(data)
            return True
        except (BrokenPipeError, ConnectionError):
            return False

    def read_some(self, limit):
        """True: data; False: closed; None: nothing within the limit."""
        self.sock.settimeout(max(0.001, limit))
        try:
            got = self.sock.recv(65536)
        except socket.timeout:
            return None
        except ConnectionError:
            return False
        self.data += got
        return bool(got)

    def frames(self):
        at, found = 0, []
        while len(self.data) - at >= 5:
            size = struct.unpack_from(">I", self.data, at)[0]
            if size < 1 or len(self.data) - at - 4 < size:
                break
            found.append((self.data[at + 4], self.data[at + 5:at + 4 + size]))
            at += 4 + size
        return found

    def wait_frame(self, kind):
        while True:
            for got, data in self.frames():
                if got == kind:
                    return data
            left = self.end - time.monotonic()
            if left <= 0 or not self.read_some(left):
                return None

    def finish(self):
        """Waits for the end: (how it ended, is that right)."""
        while True:
            left = self.end - time.monotonic()
            got = self.read_some(left) if left > 0 else None
            if got is None or got is False:
                break
        took = time.monotonic() - self.start
        self.sock.close()
        kinds = [kind for kind, _ in self.frames()]
        if WELCOME in kinds:
            return f"WELCOMED after {took:.2f} s", False
        said = f", heard {kinds}" if kinds else ""
        if got is None:
            return f"STILL OPEN after {took:.1f} s{said}", False
        return f"closed after {took:.2f} s{said}", True


def one(args, name, *parts):
    peer = Peer(args)
    for part in parts:
        if not peer.send(part):
            break
    return [(name, *peer.finish())]


def garbage(args):
    return (one(args, "random bytes", os.urandom(4096)) +
            one(args, "HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") +
            one(args, "TLS", bytes.fromhex("16030102000100") + bytes(300)) +
            one(args, "a whole frame of noise", frame(77, os.urandom(99))) +
            one(args, "READY first", frame(7, bytes(28))) +
            one(args, "nothing"))


def half_frame(args):
    whole = hello(args)
    return (one(args, "half a HELLO", whole[:len(whole) // 2]) +
            one(args, "a length only", whole[:4]) +
            one(args, "half a length", whole[:2]))


def slow(args):
    peer = Peer(args)
    for byte in hello(args):
        if not peer.send(bytes([byte])):
            break
        got = peer.read_some(1)
        if got is False or time.monotonic() > peer.end:
            break
    return [("a byte a second", *peer.finish())]


def huge_length(args):
    out = []
    for size in (0, 513, 1 << 24, (1 << 32) - 1):
        out += one(args, f"a frame of {size} bytes",
                   struct.pack(">I", size) + b"\1" + bytes(600))
    return out


def version(args):
    return one(args, "version 99", hello(args, version=99))


def answer(args, name, make):
    peer = Peer(args)
    said = hello(args)
    peer.send(said)
    data = peer.wait_frame(CHALLENGE)
    if data is None:
        how, right = peer.finish()
        return [(f"{name}: no CHALLENGE", how, False)]
    peer.send(frame(AUTH, make(said, data[:32], data[32:])))
    return [(name, *peer.finish())]


def wrong_key(args):
    key = os.urandom(32)
    return (answer(args, "another key", lambda said, nonce, mac:
                   proof(key, b"a", said, nonce)) +
            answer(args, "a key of zeros", lambda said, nonce, mac:
                   proof(bytes(32), b"a", said, nonce)))


def reflect(args):
    return answer(args, "its own proof", lambda said, nonce, mac: mac)


def silence(args):
    return one(args, "HELLO, then nothing", hello(args))


def flood(args):
    """Data until the controller closes; it must not buffer it."""
    peer = Peer(args)
    sent, block = 0, bytes(65536)
    peer.send(hello(args))
    while time.monotonic() < peer.end and peer.send(block):
        sent += len(block)
    how, right = peer.finish()
    return [(f"HELLO and {sent >> 10} KiB", how, right)]


def record_own(args):
    peer = Peer(args)
    key = bytes.fromhex(args.key)
    said = hello(args)
    peer.send(said)
    data = peer.wait_frame(CHALLENGE)
    if data is None or data[32:] != proof(key, b"c", said, data[:32]):
        sys.exit("hostile_peer: no CHALLENGE, or --key is not the step's")
    auth = frame(AUTH, proof(key, b"a", said, data[:32]))
    peer.send(auth)
    if peer.wait_frame(WELCOME) is None:
        sys.exit("hostile_peer: no WELCOME with the right key")
    return said + auth


def record_proxy(args):
    """Passes one agent on until its connection ends; what it said first."""
    with socket.socket(family_of(args.host)) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((args.host, args.listen))
        door.listen(1)
        print(f"listening on {door.getsockname()[1]}", flush=True)
        door.settimeout(args.seconds)
        agent = door.accept()[0]
    peer = Peer(args)
    said = bytearray()
    with selectors.DefaultSelector() as sel:
        sel.register(agent, selectors.EVENT_READ, peer.sock)
        sel.register(peer.sock, selectors.EVENT_READ, agent)
        end = time.monotonic() + args.proxy_seconds
        while time.monotonic() < end:
            for key, _ in sel.select(0.2):
                data = key.fileobj.recv(65536)
                if not data:
                    return bytes(said)
                if key.fileobj is agent:
                    said += data
                key.data.sendall(data)
    return bytes(said)


def replay(args):
    said = record_own(args) if args.key else record_proxy(args)
    first = 4 + struct.unpack_from(">I", said)[0]
    peer = Peer(args)
    peer.send(said[:first])
    peer.wait_frame(CHALLENGE)
    peer.send(said[first:])
    return ([("HELLO, then the rest", *peer.finish())] +
            one(args, "all at once", said))


def source(host, i):
    """Over loopback each connection comes from an address of its own."""
    if not host.startswith("127."):
        return None
    return f"127.2.{i // 250 % 250}.{i % 250 + 1}"


def dial(args, sel, count, i):
    sock = socket.socket(family_of(args.host))
    sock.setblocking(False)
    try:
        if args.spread and source(args.host, i):
            sock.bind((source(args.host, i), 0))
        sock.connect((args.host, args.port))
    except BlockingIOError:
        pass
    except OSError as error:
        count[errno.errorcode[error.errno]] = \
            count.get(errno.errorcode[error.errno], 0) + 1
        sock.close()
        return
    sel.register(sock, selectors.EVENT_WRITE)


def step_many(args, sel, count):
    """One turn of the event loop over all connections."""
    for key, what in sel.select(0.1):
        sock = key.fileobj
        if what & selectors.EVENT_WRITE:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                count["refused"] = count.get("refused", 0) + 1
                sel.unregister(sock)
                sock.close()
                continue
            count["connected"] += 1
            sel.modify(sock, selectors.EVENT_READ)
            if args.say_hello:
                sock.send(hello(args))
            continue
        try:
            data = sock.recv(4096)
        except ConnectionError:
            data = b""
        if data:
            count["heard"] += 1
            continue
        count["closed"] += 1
        sel.unregister(sock)
        sock.close()


def many(args):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = {"connected": 0, "heard": 0, "closed": 0}
    wanted = min(args.count, hard - 64)
    dialled = 0
    end = time.monotonic() + args.seconds
    with selectors.DefaultSelector() as sel:
        while time.monotonic() < end:
            for _ in range(min(100, wanted - dialled)):
                dial(args, sel, count, dialled)
                dialled += 1
            step_many(args, sel, count)
            if dialled == wanted and not sel.get_map():
                break
        left = len(sel.get_map())
        for key in list(sel.get_map().values()):
            key.fileobj.close()
    seen = ", ".join(f"{n} {what}" for what, n in count.items())
    return [(f"{dialled} connections", f"{seen}, {left} still open",
             left == 0 and dialled == args.count)]


MODES = {"garbage": garbage, "half-frame": half_frame, "slow": slow,
         "huge-length": huge_length, "version": version,
         "wrong-key": wrong_key, "reflect": reflect, "silence": silence,
         "replay": replay, "flood": flood, "many": many}


def parse_args():
    p = argparse.ArgumentParser(description="a hostile peer",
                                usage=__doc__.split("\n")[0].split(":")[0])
    p.add_argument("mode", choices=[*MODES, "all"])
    p.add_argument("host")
    p.add_argument("port", type=int)
    p.add_argument("--seconds", type=float, default=15,
                   help="limit of each connection (15)")
    p.add_argument("--count", type=int, default=10000, help="for many")
    p.add_argument("--spread", action="store_true",
                   help="many: from many addresses of 127.2.0.0/16")
    p.add_argument("--say-hello", action="store_true",
                   help="many: each sends a right HELLO")
    p.add_argument("--job", type=int, default=7)
    p.add_argument("--step", type=int, default=0)
    p.add_argument("--name", default="n1")
    p.add_argument("--key", help="for replay: the step's key in hex")
    p.add_argument("--listen", type=int,
                   help="for replay: pass an agent on that dials this port")
    p.add_argument("--proxy-seconds", type=float, default=2,
                   help="for replay: how long it is passed on (2)")
    args = p.parse_args()
    if args.mode == "replay" and not args.key and args.listen is None:
        p.error("replay needs --key or --listen")
    return args


def show(mode, results):
    """Prints them; how many are bad."""
    for name, how, right in results:
        print(f"{'ok' if right else 'BAD'} {mode}: {name}: {how}", flush=True)
    return sum(not right for _, _, right in results)


def main():
    args = parse_args()
    modes = [args.mode]
    if args.mode == "all":
        modes = [m for m in MODES if m != "many" and
                 (m != "replay" or args.key)]
    bad = 0
    try:
        with concurrent.futures.ThreadPoolExecutor(len(modes)) as pool:
            for mode, results in zip(modes, pool.map(
                    lambda mode: MODES[mode](args), modes)):
                bad += show(mode, results)
        # It would crowd the others out before they are done.
        if args.mode == "all":
            bad += show("many", many(args))
    except (ConnectionRefusedError, socket.timeout) as error:
        print(f"the controller cannot be reached: {error}")
        return 3
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
