/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host's network says: which ports the kernel hands out by itself,
 * whether a port is free, which interface leads to an address. libc only;
 * every call is bounded in time.
 */
#ifndef DDP_PROBE_H
#define DDP_PROBE_H

#include "core/ddp_port.h"
#include "core/ddp_text.h"

enum ddp_probe_result { DDP_PORT_FREE, DDP_PORT_BUSY, DDP_PORT_UNKNOWN };

/*
 * Can a server of this host listen on the port? It binds the IPv4 and the
 * IPv6 wildcard address with SO_REUSEADDR, as the frameworks' stores do, and
 * lets go again: sockets in TIME_WAIT are no hindrance, a listener on any
 * address is. UNKNOWN when no socket could be made.
 */
enum ddp_probe_result ddp_probe_bind(uint16_t port);

/*
 * Is there a listener on another host's port? BUSY after a connection, FREE
 * after a refusal, UNKNOWN after timeout_ms or any other error. ip must be
 * numeric.
 */
enum ddp_probe_result ddp_probe_connect(const char *ip, uint16_t port,
					int timeout_ms);

/* Does the numeric address belong to this host? */
bool ddp_probe_is_local(const char *ip);

/*
 * The numeric form of addr into ip (DDP_ADDR_MAX bytes); a name is looked up
 * once, an address that is no loopback is preferred. Returns 0, or -1 if it
 * does not resolve here.
 */
int ddp_probe_resolve(const char *addr, char *ip);

/*
 * This host's own numeric address on the way to `towards` (a name or an
 * address, NULL: none), or else the first of any interface; never a loopback
 * or link-local one. Sends nothing. 0, or -1 if there is none.
 */
int ddp_probe_own(const char *towards, char *ip);

/* As many addresses as ddp_probe_all() lists, and their length with the NUL. */
#define DDP_PROBE_ADDRS 8
#define DDP_PROBE_ADDR 46

/*
 * This host's numeric addresses, the one towards `towards` (or NULL) first,
 * then those of the other interfaces, a loopback address last, if there is
 * room. Returns how many.
 */
unsigned ddp_probe_all(const char *towards,
		       char list[DDP_PROBE_ADDRS][DDP_PROBE_ADDR]);

/* net.ipv4.ip_local_port_range (IPv6 uses it too). 0, or -1 if unreadable. */
int ddp_probe_ephemeral(uint32_t *lo, uint32_t *hi);

/* Take the ephemeral range and ip_local_reserved_ports out of the set. */
void ddp_probe_exclude(struct ddp_portset *set);

/*
 * The interface through which this host reaches the numeric address, or the
 * one that carries it if it is this host's own. Sends nothing. 0 or -1.
 */
int ddp_probe_iface(const char *ip, char *ifname, size_t size);

#endif
