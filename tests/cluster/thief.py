#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""thief.py READY LOG UID LOW HIGH RING: takes other people's ports, as UID.

Walks over the ports LOW to HIGH, again and again, and listens with SO_REUSEADDR
on each one that it gets. A port on which somebody else had only a bound socket
is a stolen one: it is kept for two seconds, and written into LOG. The others
go back when RING more have been taken; at once if it is -1. Who connects gets an answer that no
program understands. Makes the file READY once it walks; ends after an hour.
"""
import os
import selectors
import signal
import socket
import sys
import time

KEEP = 2


def listen(port, reuse):
    s = socket.socket(socket.AF_INET6)
    try:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        s.bind(("::", port))
        s.listen(64)
        s.setblocking(False)
        return s
    except OSError:
        s.close()
        return None


def answer(wait, limit):
    for key, _ in wait.select(limit):
        try:
            c = key.fileobj.accept()[0]
            c.send(b"THIEF THIEF THIEF THIEF\n")
            c.close()
        except OSError:
            pass


def walk(low, high, ring, log):
    wait = selectors.DefaultSelector()
    free, stolen = [], []

    def drop(s):
        wait.unregister(s)
        s.close()

    while True:
        for port in range(low, high + 1):
            while stolen and stolen[0][0] < time.monotonic() - KEEP:
                drop(stolen.pop(0)[1])
            while len(free) > max(ring, 0):
                drop(free.pop(0))
            s = listen(port, 0)
            if s and ring < 0:
                s.close()
                s = None
            elif s:
                free.append(s)
            else:
                s = listen(port, 1)
                if s:
                    stolen.append((time.monotonic(), s))
                    log.write("%d\n" % port)
                    log.flush()
            if s:
                wait.register(s, selectors.EVENT_READ)
            if not port % 16:
                answer(wait, 0)
        answer(wait, 0.002)


def main():
    ready, log, uid, low, high, ring = sys.argv[1:]
    signal.alarm(3600)
    out = open(log, "w")
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    open(ready, "w").close()
    walk(int(low), int(high), int(ring), out)


if __name__ == "__main__":
    main()
