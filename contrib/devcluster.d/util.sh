# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# Messages, waiting with a limit, and what must be installed. All output of
# devcluster itself goes to stderr: stdout belongs to the command of `run`.

say() { printf 'devcluster: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
bad_usage() { say "$*"; usage >&2; exit 2; }

# Seconds since this process started, as 3.2.
elapsed()
{
	local us=$((${EPOCHREALTIME/./} - T0))
	printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10))
}

stage() { say "$(printf '%6s s' "$(elapsed)")  $*"; }

# wait_for SECONDS CMD...: until CMD succeeds; 1 when the time is over.
wait_for()
{
	local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
	shift
	until "$@"; do
		((${EPOCHREALTIME/./} < end)) || return 1
		sleep 0.1
	done
}

# Ends a client that hangs, and lets go of our lock while it runs.
client() { timeout -k 2 20 "$@" {LOCK_FD}>&-; }

# This machine's name as Slurm compares it. Not hostname(1), which may ask a
# name server.
short_host()
{
	local h
	h=$(uname -n)
	printf '%s' "${h%%.*}"
}

# need PROGRAM PACKAGE [WHY]: says which package brings what is missing.
need()
{
	if [[ -n $O_root ]]; then
		# shellcheck disable=SC2016 # for the inner shell
		chroot "$O_root" /usr/bin/env PATH="$DAEMON_PATH" \
			sh -c 'command -v "$1"' sh "$1" >/dev/null ||
			die "$1 not found in $O_root (made by contrib/mkroot? package $2)"
	else
		command -v "$1" >/dev/null ||
			die "$1 not found: apt-get install $2"
	fi
}

need_host()
{
	local O_root=''
	need "$@"
}

check_programs()
{
	local p
	for p in setpriv unshare nsenter setsid; do
		need_host "$p" util-linux
	done
	need_host mknod coreutils
	[[ $O_netns == no ]] || need_host ip iproute2
	[[ -z $O_root ]] || need_host chroot coreutils
	need munged munge
	need mariadbd mariadb-server
	need mariadb-install-db mariadb-server
	need slurmdbd slurmdbd
	need slurmctld slurm-wlm
	need slurmd slurm-wlm
	need sinfo slurm-wlm
	need sacctmgr slurm-wlm
}
