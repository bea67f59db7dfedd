# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# The command line, and the record of it in D/options.

usage()
{
	cat <<-'X'
	usage: devcluster [options] up | down | status | env | run -- CMD... |
	                            cut NODE | uncut NODE

	  up            start the cluster; nothing if it is up
	  down          end it and remove all it made
	  status        table of its daemons, and sinfo
	  env           shell exports: eval "$(devcluster env)"
	  run -- CMD    start it if needed, run CMD there, exit with its code
	  cut NODE      with --netns: no packet from or to NODE (or "head")
	  uncut NODE    and back

	  --dir D             its folder (default: one a checkout, in /var/tmp)
	  --nodes N           slurmds, 1-250 (4)
	  --gpus G            fake GPUs a node, 0-64 (4)
	  --gpu-conf LINE     into acct_gather.conf; replaces the line of that key
	  --no-gpu-acct       no accounting of what the GPUs do
	  --cpus C            CPUs a node (8)
	  --node-prefix P     node names are P1, P2, ... (default: from D)
	  --root DIR          use the Slurm of another root (contrib/mkroot)
	  --cgroup[=memory]   confine devices, and memory, for real (cgroup v1)
	  --netns[=4|6]       networks of their own, of IPv4 (4) or IPv6 addresses
	  --conf LINE         into slurm.conf; replaces the line of that key
	  --plugstack LINE    into plugstack.conf
	  --plugin PATH       spank_ddp.so to load; auto (build it) or none
	  --plugin-args ARGS  its arguments in plugstack.conf
	  --user U            run: as this user
	X
}

# check_number OPTION VALUE MIN MAX
check_number()
{
	if ! [[ $2 =~ ^[0-9]{1,6}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
		bad_usage "$1 must be a number from $3 to $4: $2"
	fi
}

# one_line OPTION VALUE: these become lines of a file read by root's daemons.
one_line()
{
	[[ $2 != *$'\n'* && -n $2 ]] || bad_usage "$1 must be one line"
}

# set_option OPTION VALUE
set_option()
{
	case $1 in
	--dir) [[ -n $2 ]] || bad_usage "--dir is empty" ;;
	--nodes) check_number "$@" 1 250 ;;
	--gpus) check_number "$@" 0 64 ;;
	--cpus) check_number "$@" 1 1024 ;;
	--node-prefix)
		[[ $2 =~ ^[a-z]([a-z0-9-]{0,10}[a-z-])?$ ]] ||
			bad_usage "$1: lower case, at most 12, not ending in a digit: $2" ;;
	--conf | --gpu-conf)
		[[ $2 =~ ^[A-Za-z]+([ ]*=|[ ]) ]] ||
			bad_usage "$1 must be KEY=VALUE: $2"
		one_line "$@" ;;
	--plugstack | --plugin-args | --root | --plugin | --user)
		one_line "$@" ;;
	esac
	case $1 in
	--conf) O_conf+=("$2") ;;
	--gpu-conf) O_gpu_conf+=("$2") ;;
	--plugstack) O_plugstack+=("$2") ;;
	--nodes | --gpus | --cpus) printf -v "O_${1#--}" '%d' "$((10#$2))" ;;
	--node-prefix) O_node_prefix=$2 ;;
	--plugin-args) O_plugin_args=$2 ;;
	*) printf -v "O_${1#--}" '%s' "$2" ;;
	esac
	[[ $1 == --dir || $1 == --user ]] || EXPLICIT=1
}

default_options()
{
	O_dir='' O_nodes=4 O_gpus=4 O_cpus=8 O_node_prefix='' O_root=''
	O_cgroup=no O_netns=no O_plugin=auto O_plugin_args='' O_gpu_acct=yes
	O_conf=() O_gpu_conf=() O_plugstack=()
}

# parse_args: options, the command, and for run what follows it.
parse_args()
{
	COMMAND='' CMD=() PLACE='' EXPLICIT=0 O_user=''
	default_options
	while (($#)); do
		case $1 in
		-h | --help) usage; exit 0 ;;
		--cgroup) O_cgroup=yes EXPLICIT=1; shift ;;
		--cgroup=memory) O_cgroup=memory EXPLICIT=1; shift ;;
		--netns | --netns=4) O_netns=4 EXPLICIT=1; shift ;;
		--netns=6) O_netns=6 EXPLICIT=1; shift ;;
		--no-gpu-acct) O_gpu_acct=no EXPLICIT=1; shift ;;
		--) shift; [[ $COMMAND == run ]] && break
			bad_usage "-- belongs to run" ;;
		--dir=* | --nodes=* | --gpus=* | --cpus=* | --node-prefix=* | \
			--root=* | --conf=* | --gpu-conf=* | --plugstack=* | \
			--plugin=* | --plugin-args=* | --user=*)
			set_option "${1%%=*}" "${1#*=}"; shift ;;
		--dir | --nodes | --gpus | --cpus | --node-prefix | --root | \
			--conf | --gpu-conf | --plugstack | --plugin | \
			--plugin-args | --user)
			(($# >= 2)) || bad_usage "$1 needs a value"
			set_option "$1" "$2"; shift 2 ;;
		-*) bad_usage "unknown option: $1" ;;
		up | down | status | env | run)
			[[ $COMMAND != run ]] || break
			[[ -z $COMMAND ]] || bad_usage "two commands: $COMMAND, $1"
			COMMAND=$1; shift ;;
		cut | uncut)
			[[ $COMMAND != run ]] || break
			[[ -z $COMMAND ]] || bad_usage "two commands: $COMMAND, $1"
			(($# >= 2)) || bad_usage "$1 needs a node"
			COMMAND=$1 PLACE=$2; shift 2 ;;
		*) [[ $COMMAND == run ]] && break
			bad_usage "unknown command: $1" ;;
		esac
	done
	CMD=("$@")
	[[ -n $COMMAND ]] || bad_usage "no command"
	[[ $COMMAND != run || ${#CMD[@]} != 0 ]] || bad_usage "run needs a command"
	[[ -z $O_user || $COMMAND == run ]] || bad_usage "--user belongs to run"
	[[ $O_plugin == auto || $O_plugin == none ]] ||
		O_plugin=$(realpath -m -- "$O_plugin")
	[[ -z $O_root ]] || O_root=$(realpath -m -- "$O_root")
}

# dump_options: NUL-separated KEY=VALUE, so that any line can be a value.
dump_options()
{
	local k v
	for k in nodes gpus cpus node_prefix root cgroup netns plugin \
		plugin_args gpu_acct; do
		v=O_$k
		printf '%s=%s\0' "$k" "${!v}"
	done
	for v in "${O_conf[@]}"; do printf 'conf=%s\0' "$v"; done
	for v in "${O_gpu_conf[@]}"; do printf 'gpu_conf=%s\0' "$v"; done
	for v in "${O_plugstack[@]}"; do printf 'plugstack=%s\0' "$v"; done
}

# load_options: the options the cluster in D was started with; 1 if none.
load_options()
{
	local kv k v
	[[ -f $D/options ]] || return 1
	default_options
	while IFS= read -r -d '' kv; do
		k=${kv%%=*} v=${kv#*=}
		case $k in
		conf) O_conf+=("$v") ;;
		gpu_conf) O_gpu_conf+=("$v") ;;
		plugstack) O_plugstack+=("$v") ;;
		nodes | gpus | cpus | node_prefix | root | cgroup | netns | \
			plugin | plugin_args | gpu_acct)
			printf -v "O_$k" '%s' "$v" ;;
		esac
	done <"$D/options"
}

same_options() { dump_options | cmp -s - "$D/options"; }
