# SPDX-License-Identifier: Apache-2.0
#
# stdin: "/proc/PID/status:PPid:<tab>PPID" lines. Prints the pids given in
# `seeds` and all their descendants, except `self`, its ancestors and its
# children (somebody may call `devcluster down` from a job of the cluster).
{
	split($1, part, "/")
	parent[part[3]] = $2
}
END {
	n = split(seeds, s, " ")
	for (i = 1; i <= n; i++)
		in_tree[s[i]] = 1
	for (p = self; p > 1 && p in parent; p = parent[p])
		spare[p] = 1
	for (pid in parent) {
		for (p = pid; p > 1 && p in parent && p != self; p = parent[p])
			if (p in in_tree) {
				if (!(pid in spare))
					print pid
				break
			}
	}
}
