# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Bash completion of slurm-ddp's options for srun, sbatch and salloc. Works
# beside a completion that Slurm itself may bring: words that are not ours go
# to the one that was there before. To use it:
#
#     source contrib/completions/slurm-ddp.bash
#
# or install it as /etc/bash_completion.d/slurm-ddp.

_ddp_options='--ddp-launch --ddp-explain --ddp-frameworks= --ddp-master-port=
--ddp-master-addr= --ddp-iface= --ddp-abort= --ddp-abort-signal= --ddp-grace=
--ddp-exit-grace= --ddp-start-timeout= --ddp-node-timeout= --ddp-control=
--ddp-report-file= --ddp-bind= --ddp-gpus= --ddp-lifecycle
--ddp-ready-timeout='

# The values of an option, in the words of --help. Of the times only the
# default is offered; a path is completed as files are.
_ddp_values()
{
	case $1 in
	--ddp-launch) echo full stateless off ;;
	--ddp-frameworks) echo torch jax torch,jax horovod deepspeed accelerate \
		lightning tf ;;
	--ddp-master-port | --ddp-master-addr) echo auto ;;
	--ddp-abort) echo gang node none ;;
	--ddp-abort-signal) echo TERM INT HUP QUIT USR1 USR2 KILL ;;
	--ddp-grace) echo 5 ;;
	--ddp-exit-grace) echo off ;;
	--ddp-start-timeout) echo 60 ;;
	--ddp-node-timeout) echo 20 ;;
	--ddp-control) echo require prefer ;;
	--ddp-bind) echo none best-effort restricted single-numa-node verify ;;
	--ddp-gpus) echo auto node rank ;;
	--ddp-lifecycle) echo on off ;;
	--ddp-ready-timeout) echo off ;;
	--ddp-iface)
		echo none auto
		[[ ! -d /sys/class/net ]] || (cd /sys/class/net && echo *) ;;
	esac
}

# The option and the value that stand before the cursor. Bash makes "=" a
# word of its own unless COMP_WORDBREAKS was changed. Sets opt and value;
# opt is empty where no value of ours is being typed.
_ddp_split()
{
	local cur=${COMP_WORDS[COMP_CWORD]} before=
	((COMP_CWORD < 1)) || before=${COMP_WORDS[COMP_CWORD - 1]}
	opt='' value=''
	if [[ $cur == --ddp-*=* ]]; then
		opt=${cur%%=*} value=${cur#*=} prefix=$opt=
	elif [[ $cur == '=' && $before == --ddp-* ]]; then
		opt=$before
	elif [[ $before == '=' && ${COMP_WORDS[COMP_CWORD - 2]} == --ddp-* ]]
	then
		opt=${COMP_WORDS[COMP_CWORD - 2]} value=$cur
	elif [[ $before == --ddp-* && $before != --ddp-launch &&
		$before != --ddp-lifecycle && $before != --ddp-explain && $cur != -* ]]; then
		opt=$before value=$cur
	fi
}

# The completion function of a command, or nothing.
_ddp_function()
{
	local spec
	spec=$(complete -p "$1" 2>/dev/null)	# complete … -F FUNCTION COMMAND
	[[ $spec == *'-F '* ]] || return 0
	spec=${spec##*-F }
	spec=${spec%% *}
	[[ $spec == _ddp_complete ]] || echo "$spec"
}

# bash-completion loads Slurm's own completion at its first use; so do we.
_ddp_load()
{
	local loader
	for loader in _comp_load _completion_loader; do
		declare -F "$loader" >/dev/null || continue
		complete -r "$1" 2>/dev/null
		"$loader" "$1" 2>/dev/null
		break
	done
	printf -v "_ddp_before_$1" '%s' "$(_ddp_function "$1")"
	complete -o default -F _ddp_complete "$1"
}

_ddp_complete()
{
	local cmd=${1##*/} cur=${COMP_WORDS[COMP_CWORD]} old
	local opt value prefix=''
	_ddp_split
	if [[ -n $opt ]]; then
		if [[ $opt == --ddp-report-file ]]; then
			mapfile -t COMPREPLY < <(compgen -P "$prefix" \
				-f -- "$value")
			compopt -o filenames 2>/dev/null
			return 0
		fi
		mapfile -t COMPREPLY < <(compgen -P "$prefix" \
			-W "$(_ddp_values "$opt")" -- "$value")
		return 0
	fi
	COMPREPLY=()
	if [[ $cur != --ddp* ]]; then
		old=_ddp_before_$cmd
		[[ -v $old ]] || _ddp_load "$cmd"
		[[ -z ${!old} ]] || "${!old}" "$@"
	fi
	[[ $cur == -* ]] || return 0
	mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen \
		-W "$_ddp_options" -- "$cur")
	[[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] ||
		compopt -o nospace 2>/dev/null
	return 0
}

_ddp_setup()
{
	local cmd was
	for cmd in srun sbatch salloc; do
		was=$(_ddp_function "$cmd")
		[[ -z $was ]] || printf -v "_ddp_before_$cmd" '%s' "$was"
		complete -o default -F _ddp_complete "$cmd"
	done
}

_ddp_setup
unset -f _ddp_setup
