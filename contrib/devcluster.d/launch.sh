#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# launch.sh RECORD CMD...: becomes CMD after it has written its own pid and
# start time to RECORD. The process records itself, so that there is no moment
# at which it runs and `down` could not know it. It keeps no descriptor of its
# caller but 0-2: the lock, a bats fd 3 or a $(...) pipe would outlive them.

record=$1
shift
for fd in /proc/"$$"/fd/*; do
	fd=${fd##*/}
	# 255 is bash's own, and closes on exec.
	((fd > 2 && fd != 255)) && eval "exec $fd>&-"
done
IFS= read -r -d '' stat </proc/$$/stat
# The name may hold blanks: count the fields after its closing parenthesis.
read -r -a field <<<"${stat##*) }"
printf '%s %s\n' "$$" "${field[19]}" >"$record.new" &&
	mv -f -- "$record.new" "$record" || exit 1
cd /
exec "$@"
