#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# enter.sh ROOT NEW HOSTS READY PATH...: builds, in the private mount
# namespace it was started in, a root folder at NEW from the distribution root
# ROOT, with this machine's /dev, /proc, /sys and PATHs at their own places
# and HOSTS as /etc/hosts; makes the file READY and then just waits, to hold
# the namespace for the others.
#
# NEW is a tmpfs onto which ROOT's entries are bound, and so is any folder in
# which a mount point has to be made ("opened"): nothing is written to ROOT.

set -eu
root=$1 new=$2 hosts=$3 ready=$4
shift 4

# copy_in FROM TO: each entry of FROM appears in the empty folder TO.
copy_in()
{
	local f
	shopt -s dotglob nullglob
	for f in "$1"/*; do
		if [[ -L $f ]]; then
			cp -P -- "$f" "$2/"
		elif [[ -d $f ]]; then
			mkdir -- "$2/${f##*/}"
			mount --rbind "$f" "$2/${f##*/}"
		else
			: >"$2/${f##*/}"
			mount --bind "$f" "$2/${f##*/}"
		fi
	done
}

# open_up DIR: a folder of the new root becomes a tmpfs with the same entries.
open_up()
{
	local aside=$new.aside
	mkdir -p -- "$aside"
	mount --rbind "$1" "$aside"
	mount -t tmpfs -o mode="$(stat -c %a "$1")" devcluster "$1"
	copy_in "$aside" "$1"
	umount -l "$aside"
	rmdir -- "$aside"
}

# place PATH: the machine's PATH at the same place in the new root.
place()
{
	local at=$new part rest=${1#/}
	while [[ -n $rest ]]; do
		part=${rest%%/*}
		if [[ ! -d $at/$part ]]; then
			[[ $(stat -f -c %T "$at") == tmpfs ]] || open_up "$at"
			mkdir -- "$at/$part"
		fi
		at=$at/$part
		[[ $rest == */* ]] && rest=${rest#*/} || rest=''
	done
	mount --rbind "$1" "$at"
}

mount -t tmpfs -o mode=755 devcluster "$new"
copy_in "$root" "$new"
if [[ ! -f $new/etc/hosts ]]; then
	open_up "$new/etc"
	: >"$new/etc/hosts"
fi
mount --bind "$hosts" "$new/etc/hosts"
for p in /dev /proc /sys /tmp "$@"; do
	place "$p"
done
: >"$ready"
exec chroot "$new" sleep infinity
