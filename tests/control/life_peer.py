#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process of a task that speaks to its agent as the life-cycle library does.

Its words are done in order:

    hello[=MS]   connect, and say "life"     send=TEXT    a line
    dial         connect alone               raw=HEX      a packet
    recv         wait for a line             many=N       N more connections
    again=N      connect N times, each to be closed at once
    sleep=S      hold   until the end of the connection
    child:WORDS  a child does these (with commas) and is not waited for
    exit=N       deaf   a handler for SIGTERM that only notes it

What it gets goes to the file got.RANK, a line each, with the name of the
socket first and "end" last.
"""
import os
import signal
import socket
import sys
import time

NAME = os.environ.get("DDP_LIFECYCLE_SOCKET", "")
OUT = os.open("got." + os.environ["RANK"],
              os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


def note(text):
    os.write(OUT, (text + "\n").encode())


def dial():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("\0" + NAME[1:])
    return s


def recv(s):
    try:
        return s.recv(1000).decode().rstrip("\n")
    except ConnectionError:
        return ""


def main(words):
    s, more = None, []
    for word in words:
        name, _, value = word.partition("=")
        if word.startswith("child:"):
            if not os.fork():
                main(word[len("child:"):].split(","))
                os._exit(0)
        elif name in ("hello", "dial"):
            s = dial()
            if name == "hello":
                s.send(b"life 1 %d %s\n" % (os.getpid(), value.encode()))
        elif name == "send":
            s.send(value.encode() + b"\n")
        elif name == "raw":
            try:
                s.send(bytes.fromhex(value))
            except (BrokenPipeError, ConnectionResetError):
                pass
        elif name == "many":
            for _ in range(int(value)):
                c = dial()
                try:
                    c.send(b"life 1 %d\n" % os.getpid())
                except BrokenPipeError:
                    pass
                more.append(c)
        elif name == "again":
            for _ in range(int(value)):
                dial().close()
        elif name == "recv":
            note(recv(s))
        elif name == "hold":
            while (line := recv(s)):
                note(line)
            note("end")
        elif name == "sleep":
            time.sleep(float(value))
        elif name == "deaf":
            signal.signal(signal.SIGTERM, lambda *_: note("SIGTERM"))
        elif name == "open":
            for c in more:      # who still is
                c.settimeout(0.01)
                try:
                    note("closed" if c.recv(10) == b"" else "?")
                except socket.timeout:
                    note("open")
                except ConnectionError:
                    note("closed")
        elif name == "exit":
            os._exit(int(value))
        else:
            raise SystemExit("no word: " + word)


if __name__ == "__main__":
    note("socket " + NAME)
    main(sys.argv[1:])
