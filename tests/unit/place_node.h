/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node whose topology is a file, with a driver's files below a folder of its
 * own, and the tasks of a step on it: for the tests of ddp-place.
 */
#ifndef PLACE_NODE_H
#define PLACE_NODE_H

#include "launcher/place.h"

/* The folder of all that a test program writes. */
extern char node_dir[64];
extern struct place node;

/* Make the folder, and each named topology in it (NULL ends the list;
 * "here 8" becomes here8.xml). false: it cannot be done. */
bool node_begin(const char *const *names);
void node_end(void);
/* Another sysroot, with nothing in it: before each test. */
void node_fresh(void);

/* DIR/NAME.xml, in one of a few buffers. */
const char *node_xml(const char *name);
/* A file below the sysroot, with all that is above it. */
void node_write(const char *path, const char *text);

/* The topology is loaded, for n tasks that may run on these CPUs. */
void node_load(const char *xml, unsigned n, const char *cpus);
/* The same again for other tasks. */
void node_again(unsigned n, const char *cpus);
void node_list(const char *list);	/* of all tasks */
void node_free(void);

/* What the NVIDIA driver says of a GPU; the kernel of one of AMD's. */
void node_driver(const char *bus, unsigned minor, const char *uuid);
void node_kfd(unsigned number, unsigned simds, unsigned bus);

/* "0-3,8" of a set. */
const char *node_cpus(const ddp_cpus set);
/* place_make(), and the texts all end. */
unsigned node_make(void);
/* "DEVICES|LIST|CPUS" of a rank's answer, with "-" for what is not set. */
const char *node_answer(unsigned i);

#endif
