/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between fork and exec. The parent may have threads (srun, slurmstepd), so
 * nothing here takes a lock or allocates.
 */
#ifndef DDP_CHILD_H
#define DDP_CHILD_H

/*
 * Become a process that holds nothing of its parent: a session of its own,
 * /dev/null as 0 to 2, fds[0] … fds[n - 1] as 3 … 2 + n, all others closed,
 * signals as by default and none blocked. Returns 0, or an errno.
 */
int ddp_child_detach(const int *fds, unsigned n);

/* Close this descriptor and all above it. */
void ddp_child_close_from(int first);

/*
 * Leave Slurm's cgroups of v1, as root: Slurm stops, kills and limits who is in
 * a step's, and removes them when the step ends, which this process may outlive
 * by some milliseconds. With v2 slurmstepd's own leaf is kept that long.
 */
void ddp_child_leave_cgroups(void);

/* slurmstepd is not to be killed when memory runs out; this process may be.
 * Where that cannot be set, in a container say, it stays as it is. */
void ddp_child_oom_normal(void);

/* Every signal's default action, and none blocked. */
void ddp_child_signals(void);

#endif
