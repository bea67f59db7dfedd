# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of fault.bash
#
# Ranks that do not want to end, and leave something behind: for a cluster
# with and without --cgroup. Case 25.

# HOW, the daemons of a rank: with an environment to know them by, and where
# there are cgroups without.
HOW=("" "=keep")
# All that was ended is counted: nobody else ends it.
COUNTED=1

# stubborn: ranks ignore SIGTERM, each has a daemon in a session of its own.
stubborn()
{
	local how
	for how in "${HOW[@]}"; do
		rm -f ranks/*
		ends 7 6 "3:join,after=200,exit=7" \
			"*:ignore=15,daemon$how,join,sleep"
		named 3 "exited with code 7"
		says "3 by SIGKILL after 1 s"
		# Slurm's own end of a cgroup may be quicker with some.
		if [[ $COUNTED ]]; then
			says "3 other processes"
		fi
		((MS >= 1000))
		clean
	done
}

# stubborn_daemon: the rank that fails itself leaves one.
stubborn_daemon()
{
	local how
	for how in "${HOW[@]}"; do
		rm -f ranks/*
		ends 7 6 "3:daemon$how,join,exit=7" "*:daemon$how,join,sleep"
		named 3 "exited with code 7"
		clean
	done
}

# stubborn_cancel: and Slurm's own end of the job.
stubborn_cancel()
{
	local how
	for how in "${HOW[@]}"; do
		rm -f ranks/*
		start_step "*:ignore=15,daemon$how,join,sleep"
		happened 4 joined
		since_now
		in_cluster scancel "$(job_id)"
		finish_step 12
		# srun's code is Slurm's affair: 0 where it has given up waiting.
		if [[ $stderr == *"failed first"* ]]; then
			told
			return 1
		fi
		same cancelled "$(report status)"
		# KillWait is three seconds here.
		((MS >= 2500)) || { told; return 1; }
		clean
	done
}
