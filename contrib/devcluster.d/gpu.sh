# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # variables of other parts
#
# Accounting of the fake GPUs: the accounting plugin, its sampler, and a fake
# NVML that gives them what D/gpu/scenario says. All from the build of the
# SPANK plugin.

ACCT_TRES=gres/gpu,gres/gpusm,gres/gpumembw,gres/gpuenergy,gres/gpuidle,ic/nvlink,ic/pcie

# find_gpu_acct: sets ACCT to the build's folder and SLURM_PLUGINS, or ACCT to
# nothing where the build has no GPU accounting, or none is wanted.
find_gpu_acct()
{
	local build=${PLUGIN%/.libs/*} f
	ACCT=''
	[[ $O_gpu_acct == yes ]] || return 0
	for f in "$build/.libs/acct_gather_interconnect_ddp.so" \
		"$build/ddp-gpu-sampler" \
		"$build/tests/fakes/libnvidia-ml/libnvidia-ml.so.1"; do
		[[ -n $PLUGIN && -f $f ]] && continue
		((${#O_gpu_conf[@]} == 0)) ||
			die "--gpu-conf: no accounting without $f"
		return 0
	done
	slurm_plugindir
	ACCT=$build
}

# slurm_plugindir: sets SLURM_PLUGINS to the folder of Slurm's own plugins. It
# is where the library is that they share with the daemons.
slurm_plugindir()
{
	local -a found
	local dir
	# shellcheck disable=SC2016 # for the inner shell
	mapfile -t found < <(
		in_place sh -c 'ldd "$(command -v slurmd)"' 2>/dev/null |
			sed -n 's|.*=> *\(/.*\)/libslurmfull\.so.*|\1|p'
		cd -- "${O_root:-/}" && printf '/%s\n' usr/lib/*/slurm-wlm \
			usr/lib/*/slurm usr/lib64/slurm usr/lib/slurm \
			usr/local/lib/slurm)
	for dir in "${found[@]}"; do
		[[ -f $O_root$dir/auth_munge.so ]] || continue
		SLURM_PLUGINS=$dir
		return 0
	done
	die "no auth_munge.so to be found${O_root:+ in $O_root}: where are Slurm's plugins? (--no-gpu-acct does without)"
}

# write_gpu_conf: lines for slurm.conf.
write_gpu_conf()
{
	[[ -n $ACCT ]] || return 0
	printf '%s\n' "PluginDir=$D/plugins:$SLURM_PLUGINS" \
		AcctGatherInterconnectType=acct_gather_interconnect/ddp
}

# own_interconnect: a --conf line has the accounting plugin left out. Slurm
# does not start with keys of a plugin that it does not load.
own_interconnect()
{
	local line
	for line in "${O_conf[@]}"; do
		line=${line,,}
		[[ $line =~ ^acctgatherinterconnecttype && $line != *ddp* ]] &&
			return 0
	done
	return 1
}

write_acct_gather_conf()
{
	own_interconnect || printf '%s\n' \
		"DdpGpuLibrary=$D/gpu/libnvidia-ml.so.1" \
		"DdpGpuSampler=$D/bin/ddp-gpu-sampler"
}

# write_scenario: G GPUs at work, no two alike, the last of three or more
# idle. Their order in NVML is not that of their minor numbers.
write_scenario()
{
	local i m sm
	cat <<-X
		# What the fake GPUs of every node do; scenario.NODE, where it
		# exists, is for that node. Read when a step begins. The words
		# are explained in tests/fakes/fake_ml_parse.c.
		origin $EPOCHREALTIME
		period 20
		devdir $D/dev
	X
	for ((i = 0; i < O_gpus; i++)); do
		m=$(((i + 1) % O_gpus))
		sm=$((92 - m * 13 % 61))
		((O_gpus < 3 || m < O_gpus - 1)) || sm=0
		printf '\ngpu minor=%d bus=0000:%02x:00.0 uuid=GPU-%08x-0dd0-4000-8000-%012x name="%s"\n' \
			"$m" $((4 + 3 * m)) "$m" "$m" "Fake H100"
		((sm)) || { printf 'power 0:68\n'; continue; }
		# Steps of training, and a pause for data in each period.
		printf 'sm 0:%d 7:%d 14:%d 18:%d\n' "$sm" $((sm + 6)) \
			$((sm - 9)) $((sm / 4))
		printf 'membw 0:%d 14:%d 18:%d\n' $((sm * 6 / 10)) \
			$((sm / 2)) $((sm / 8))
		printf 'util 0:99 18:40\n'
		printf 'nvlink_rx 0:%d 18:0\nnvlink_tx 0:%d 18:0\n' \
			$((sm * 2000000000)) $((sm * 1900000000))
		printf 'pcie_rx 0:%d 18:%d\npcie_tx 0:%d\n' \
			$((sm * 4000000)) $((sm * 9000000)) $((sm * 1000000))
		printf 'power 0:%d 18:%d\n' $((90 + sm * 6)) $((90 + sm))
	done
}

# put_gpu_acct: all of it into D. A scenario that is there stays.
put_gpu_acct()
{
	[[ -n $ACCT ]] || return 0
	put_file "$ACCT/.libs/acct_gather_interconnect_ddp.so" \
		"$D/plugins/acct_gather_interconnect_ddp.so"
	put_file "$ACCT/ddp-gpu-sampler" "$D/bin/ddp-gpu-sampler"
	mkdir -p -- "$D/gpu" || die "cannot make $D/gpu"
	put_file "$ACCT/tests/fakes/libnvidia-ml/libnvidia-ml.so.1" \
		"$D/gpu/libnvidia-ml.so.1"
	[[ -e $D/gpu/scenario ]] || write_scenario >"$D/gpu/scenario" ||
		die "cannot write $D/gpu/scenario"
}
