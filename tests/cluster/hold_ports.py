#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hold_ports.py READY ADDRESS PORT...: listen on the ports of an address.

Makes the file READY once it does, and ends after two minutes at the latest.
An IPv6 address holds IPv6 alone.
"""
import signal
import socket
import sys

signal.alarm(120)
held = []
for port in sys.argv[3:]:
    family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((sys.argv[2], int(port)))
    s.listen()
    held.append(s)
with open(sys.argv[1], "w"):
    pass
signal.pause()
