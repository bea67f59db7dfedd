# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# --root: another distribution's Slurm. One process, the holder, keeps a
# private mount namespace with the root in it (enter.sh); every other process
# joins that. The machine's own mount table never sees a mount, so there is
# nothing to unmount, whatever dies.

# in_place CMD...: runs CMD with the programs of the root before the holder is
# up, or of this machine.
in_place()
{
	if [[ -n $O_root ]]; then
		chroot "$O_root" /usr/bin/env -i PATH="$DAEMON_PATH" "$@"
	else
		PATH=$DAEMON_PATH "$@"
	fi
}

check_root()
{
	[[ -n $O_root ]] || return 0
	O_root=$(realpath -e -- "$O_root" 2>/dev/null) ||
		die "no such root folder: $O_root"
	[[ -x $O_root/usr/bin/env ]] ||
		die "not a distribution root (no usr/bin/env): $O_root"
	[[ $O_root != / ]] || die "--root / is what happens without --root"
}

# set_enter [PLACE]: ENTER becomes the prefix that runs a command inside, with
# --netns in the network of PLACE (head); empty where there is nothing to
# enter. 1 if a holder is gone.
set_enter()
{
	local at cwd
	ENTER=()
	if [[ $O_netns != no ]]; then
		rec_pid "net-${1:-head}" || return 1
		ENTER=("--net=/proc/$REPLY/ns/net")
	fi
	if [[ -n $O_root ]]; then
		rec_pid holder || return 1
		at=/proc/$REPLY
		# In the caller's folder where that exists inside too.
		cwd=$at/root$PWD
		[[ -d $cwd ]] || cwd=$at/root
		ENTER+=("--mount=$at/ns/mnt" "--root=$at/root" "--wd=$cwd")
	fi
	((${#ENTER[@]} == 0)) || ENTER=(nsenter "${ENTER[@]}" --)
}

start_holder()
{
	[[ -n $O_root ]] || return 0
	mkdir -p -- "$D/root"
	printf '127.0.0.1 localhost\n::1 localhost\n127.0.0.1 %s\n' \
		"$(short_host)" >"$D/etc/hosts"
	rm -f -- "$D/run/holder.ready"
	ENTER=()
	spawn holder unshare -m --propagation private \
		bash "$LIB/enter.sh" "$O_root" "$D/root" "$D/etc/hosts" \
		"$D/run/holder.ready" "$D" "$CHECKOUT"
	wait_daemon holder 20 test -e "$D/run/holder.ready"
}
