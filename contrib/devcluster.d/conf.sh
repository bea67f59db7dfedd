# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# The configuration files, all below D/etc.

# slurm_version: sets SLURM_VERSION to what slurmd -V says, e.g. 24.11.5.
slurm_version()
{
	local out
	out=$(in_place slurmd -V) || die "slurmd -V failed"
	SLURM_VERSION=${out##* }
	[[ $SLURM_VERSION =~ ^[0-9]+\.[0-9]+\. ]] ||
		die "cannot read a version from slurmd -V: $out"
}

# at_least MAJOR MINOR: of Slurm.
at_least()
{
	local major minor
	IFS=. read -r major minor _ <<<"$SLURM_VERSION"
	((10#$major > $1 || (10#$major == $1 && 10#$minor >= $2)))
}

# write_protocol: for slurm.conf and slurmdbd.conf.
write_protocol()
{
	[[ $O_netns != 6 ]] ||
		echo CommunicationParameters=EnableIPv6,DisableIPv4
}

write_slurm_conf()
{
	local host proctrack=linuxproc task=none tres=gres/gpu
	host=$(short_host)
	[[ -z $ACCT ]] || tres=$ACCT_TRES
	write_protocol
	[[ $O_cgroup == no ]] || proctrack=cgroup task=cgroup
	cat <<-X
		ClusterName=$NODE_PREFIX
		SlurmctldHost=$host($(head_addr))
		SlurmUser=root
		SlurmctldPort=$CTLD_PORT
		AuthType=auth/munge
		AuthInfo=socket=$D/run/munge.sock
		ReturnToService=2
		ProctrackType=proctrack/$proctrack
		TaskPlugin=task/$task
		DefMemPerCPU=100
		MpiDefault=none
		MailProg=/bin/true
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core_Memory
		GresTypes=gpu
		JobAcctGatherType=jobacct_gather/linux
		AccountingStorageType=accounting_storage/slurmdbd
		AccountingStorageHost=$(head_addr)
		AccountingStoragePort=$DBD_PORT
		AccountingStoragePass=$D/run/munge.sock
		AccountingStorageTRES=$tres
		SlurmdParameters=config_overrides
		MessageTimeout=60
		TCPTimeout=10
		PlugStackConfig=$D/etc/plugstack.conf
		StateSaveLocation=$D/state
		SlurmdSpoolDir=$D/spool/%n
		SlurmctldPidFile=$D/run/slurmctld.slurm-pid
		SlurmdPidFile=$D/run/slurmd-%n.slurm-pid
		SlurmctldLogFile=$D/log/slurmctld.log
		SlurmdLogFile=$D/log/slurmd-%n.log
		SlurmctldDebug=info
		SlurmdDebug=info
	X
	write_gpu_conf
}

# One address, of 127/8 without --netns, and one port a node: a plain slurmd listens on its port
# on all addresses, so the ports differ too.
write_nodes()
{
	# Memory is only counted: enough for every CPU at DefMemPerCPU.
	local mem=$((O_cpus > 40 ? O_cpus * 100 : 4000))
	local gres='' range="[1-$O_nodes]" ports="[$NODE_PORT-$LAST_PORT]"
	((O_nodes > 1)) || range=1 ports=$NODE_PORT
	((O_gpus == 0)) || gres=" Gres=gpu:$O_gpus"
	printf 'NodeName=%s%s NodeHostname=%s NodeAddr=%s Port=%s' \
		"$NODE_PREFIX" "$range" "$(short_host)" "$(node_addr "$range")" \
		"$ports"
	printf ' CPUs=%d Boards=1 SocketsPerBoard=1 CoresPerSocket=%d' \
		"$O_cpus" "$O_cpus"
	printf ' ThreadsPerCore=1 RealMemory=%d%s\n' "$mem" "$gres"
	printf 'PartitionName=main Nodes=ALL Default=YES State=UP %s\n' \
		MaxTime=INFINITE
}

# merge_conf LINE...: filters slurm.conf on stdin. A line whose key is there
# replaces it (a key is compared without its case, as Slurm does); keys that
# may stand several times, and new ones, are added.
merge_conf()
{
	local line key given
	local -A new=()
	local -a more=()
	for given; do
		key=${given%%=*}
		key=${key//[[:space:]]/}
		case ${key,,} in
		nodename | partitionname | nodeset | downnodes | frontendname | \
			include*) more+=("$given") ;;
		*) new[${key,,}]=$given ;;
		esac
	done
	while IFS= read -r line; do
		key=${line%%=*}
		key=${key,,}
		if [[ -n ${new[$key]:-} ]]; then
			line=${new[$key]}
			unset "new[$key]"
		fi
		printf '%s\n' "$line"
	done
	printf '%s\n' "${new[@]}" "${more[@]}" | sed '/^$/d'
}

write_dbd_conf()
{
	# localhost makes libmariadb use the socket named in MYSQL_UNIX_PORT;
	# the database listens nowhere else, in a folder only root can enter.
	# slurmdbd finds StorageLoc made (init.sql): where it has to make it
	# itself, libmariadb 3.4.10 loses its options in the first, failing
	# connect and then refuses every result ("number of columns").
	write_protocol
	cat <<-X
		AuthType=auth/munge
		AuthInfo=socket=$D/run/munge.sock
		DbdHost=localhost
		DbdPort=$DBD_PORT
		SlurmUser=root
		StorageType=accounting_storage/mysql
		StorageHost=localhost
		StorageUser=root
		StorageLoc=slurm_acct_db
		LogFile=$D/log/slurmdbd.log
		PidFile=$D/run/slurmdbd.slurm-pid
		DebugLevel=info
		MessageTimeout=60
	X
}

write_cgroup_conf()
{
	local ram=no
	[[ $O_cgroup != memory ]] || ram=yes
	if [[ $O_cgroup != no ]]; then
		printf '%s\n' CgroupPlugin=cgroup/v1 ConstrainDevices=yes \
			ConstrainCores=no ConstrainRAMSpace=$ram
	elif at_least 24 5; then
		# These load a cgroup plugin even where nothing asks for it.
		printf '%s\n' CgroupPlugin=disabled
	fi
}

write_gres_conf()
{
	local nodes=$NODE_PREFIX"[1-$O_nodes]" files=$D"/dev/nvidia[0-$((O_gpus - 1))]"
	((O_nodes > 1)) || nodes=${NODE_PREFIX}1
	((O_gpus > 1)) || files=$D/dev/nvidia0
	printf 'AutoDetect=off\n'
	((O_gpus == 0)) || printf \
		'NodeName=%s Name=gpu File=%s Flags=nvidia_gpu_env\n' \
		"$nodes" "$files"
}

# What full mode runs; the plugin is told where, as for ddp-launch. A plugin
# that `make install` has put somewhere knows it.
HELPERS=(ddp-controller ddp-agent ddp-place)
LIFECYCLE=libddp_lifecycle.so

write_plugstack()
{
	local args='' build=${PLUGIN%/.libs/*}
	[[ ! -x $build/ddp-launch ]] || args=" launcher=$D/bin/ddp-launch"
	[[ ! -x $build/${HELPERS[0]} || ! -x $build/${HELPERS[1]} ]] ||
		args+=" helpers=$D/bin"
	[[ ! -e $build/.libs/$LIFECYCLE ]] ||
		args+=" lifecycle_library=$D/bin/$LIFECYCLE"
	args+=" sysroot=$D"	# the fake GPUs are in its dev
	[[ $O_plugin == none ]] || printf 'required %s%s\n' \
		"$D/plugins/spank_ddp.so" \
		"$args${O_plugin_args:+ $O_plugin_args}"
	((${#O_plugstack[@]} == 0)) || printf '%s\n' "${O_plugstack[@]}"
}

# Real character devices: with a plain file jobs get no CUDA_VISIBLE_DEVICES.
# Where there is a real device of that number its mode is kept.
make_gpus()
{
	local g mode
	for ((g = 0; g < O_gpus; g++)); do
		mode=$(stat -c %a "/dev/nvidia$g" 2>/dev/null) || mode=666
		mknod -m "$mode" "$D/dev/nvidia$g" c 195 "$g" ||
			die "cannot make a device in $D (a container without CAP_MKNOD?)"
	done
}

write_config()
{
	local n
	for n in etc log run state spool dev plugins bin tmp; do
		mkdir -p -- "$D/$n" || return 1
	done
	(umask 077 && mkdir -p -- "$D/db" "$D/key") || return 1
	for ((n = 1; n <= O_nodes; n++)); do
		mkdir -p -- "$D/spool/$NODE_PREFIX$n" || return 1
	done
	{
		write_slurm_conf | merge_conf "${O_conf[@]}"
		write_nodes
	} >"$D/etc/slurm.conf" &&
		write_gres_conf >"$D/etc/gres.conf" &&
		{ [[ -z $ACCT ]] || write_acct_gather_conf |
			merge_conf "${O_gpu_conf[@]}" \
				>"$D/etc/acct_gather.conf"; } &&
		write_cgroup_conf >"$D/etc/cgroup.conf" &&
		write_plugstack >"$D/etc/plugstack.conf" &&
		printf 'CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n' \
			>"$D/etc/init.sql" &&
		(umask 077 && write_dbd_conf >"$D/etc/slurmdbd.conf") &&
		(umask 077 && head -c 1024 /dev/urandom >"$D/key/munge.key") ||
		return 1
	make_gpus
}

# check_cgroup: real confinement needs cgroup v1 trees we can write.
check_cgroup()
{
	local c list=(freezer devices)
	[[ $O_cgroup != no ]] || return 0
	[[ $O_cgroup != memory ]] || list+=(memory)
	for c in "${list[@]}"; do
		grep -qE "^[^ ]+ /sys/fs/cgroup/$c cgroup rw" /proc/mounts ||
			die "--cgroup needs the cgroup v1 controller '$c' writable at /sys/fs/cgroup/$c; this machine has none (run without --cgroup)"
	done
}

# cgroup_dirs: the trees that Slurm 22.05 makes, one a node and controller.
cgroup_dirs()
{
	local d
	for d in /sys/fs/cgroup/*/"slurm_$NODE_PREFIX"[0-9]*; do
		[[ -d $d ]] && printf '%s\n' "$d"
	done
	return 0
}

cgroup_pids()
{
	local -a dirs
	mapfile -t dirs < <(cgroup_dirs)
	((${#dirs[@]})) || return 0
	find "${dirs[@]}" -name cgroup.procs -exec cat {} + 2>/dev/null
}

remove_cgroups()
{
	local -a dirs
	local try
	for ((try = 0; try < 20; try++)); do
		mapfile -t dirs < <(cgroup_dirs)
		((${#dirs[@]})) || return 0
		find "${dirs[@]}" -depth -type d -exec rmdir {} \; 2>/dev/null
		((try)) && sleep 0.1
	done
	say "left behind: ${dirs[*]}"
	return 1
}
