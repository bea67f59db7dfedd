#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The accounting of GPUs when its sampler or the driver breaks: the step ends
# as it would without, in time, and what was measured until then is stored.
#
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # code for other shells; bats
# shellcheck disable=SC2034 # variables of acct_fault.bash

load lib
load launch
load acct_fault

setup_file() { faulty_up --nodes 8; }
teardown_file() { launch_down; }
setup() { faulty_setup; }
teardown() { faulty_teardown; }

@test "the sampler is stopped, or killed" {
	begin 0 3
	for k in 1 2 3 4 5; do begin "$k" 3; done
	running 0 1 2 3 4 5
	# Early: some tenths of a second are measured at most.
	sampling 4 && kill -STOP "$(sampler_of 4)"
	sleep 1
	for k in 1 2; do kill -STOP "$(sampler_of "$k")"; done
	kill -KILL "$(sampler_of 3)"
	kill -TERM "$(sampler_of 5)"
	sleep 1
	kill -CONT "$(sampler_of 2)"
	for k in 0 1 2 3 4 5; do finish "$k"; done
	covers 0 2700 3400
	covers 1 500 2900
	logged 1 "stopped to answer"
	covers 2 2700 3400
	covers 3 500 2900
	logged 3 "the GPU sampler has ended"
	covers 5 500 2900
	never_wrong 4 0 2900
	clean
}

@test "a driver call hangs" {
	scenario 0 "hang nvmlInit_v2"
	scenario 1 "hang nvmlGpmSampleGet"
	scenario 2 "hang nvmlDeviceGetTotalEnergyConsumption at=11"
	scenario 3 "hang nvmlDeviceGetHandleByIndex_v2"
	scenario 4 "hang nvmlGpmMetricsGet at=3 seconds=1"
	scenario 5 "hang nvmlShutdown"
	for k in 0 1 2 3 4 5; do begin "$k" 3; done
	for k in 0 1 2 3 4 5; do finish "$k"; done
	covers 0 none
	logged 0 "did not answer"
	covers 1 none
	covers 2 600 1600
	logged 2 "stopped to answer"
	covers 3 none
	covers 4 2700 3400
	covers 5 2700 3400
	clean
}

# The reading after the last task is the first that has an even second.
@test "the last reading hangs" {
	scenario 0 "hang nvmlDeviceGetTotalEnergyConsumption at=3 gpu=0"
	begin_cmd 0 sleep 0.3
	finish 0
	never_wrong 0 0 600
	clean
}

@test "GPUs fall off the bus, or were never there" {
	scenario 0 "0:lost 2.5"
	scenario 1 "0:lost 2.5" "1:lost 2.5"
	scenario 2 "0:lost 0" "1:lost 0"
	scenario 3 "fail nvmlInit_v2 code=999"
	scenario 4 "fail nvmlDeviceGetHandleByIndex_v2 code=15 gpu=0"
	for k in 0 1 2 3 4; do begin "$k" 3; done
	for k in 0 1 2 3 4; do finish "$k"; done
	# GPU 1 goes on: its 300 W and 60 %.
	in_range 0 joules "$(usage 0 5 gres/gpuenergy)" 850 1280
	in_range 0 gpusm "$(usage 0 4 gres/gpusm)" 50 59
	covers 1 300 2600
	covers 2 none
	covers 3 none
	logged 3 "NVML does not start"
	clean
}

@test "the driver is slow" {
	scenario 0 "slow nvmlGpmSampleGet ms=300"
	scenario 1 "slow nvmlDeviceGetTotalEnergyConsumption ms=300" \
		"slow nvmlDeviceGetFieldValues ms=300" \
		"slow nvmlGpmSampleGet ms=300" "slow nvmlGpmMetricsGet ms=300"
	scenario 2 "slow nvmlDeviceGetTotalEnergyConsumption ms=2000"
	scenario 3 "slow nvmlInit_v2 ms=2000"
	for k in 0 1 2 3; do begin "$k" 4; done
	for k in 0 1 2 3; do finish "$k"; done
	# The last reading may be that much later than the end.
	for k in 0 1 2 3; do never_wrong "$k" 0 5100; done
	covers 0 2000 5100
	covers 3 1000 2500
	clean
}

@test "calls that fail" {
	scenario 0 "fail nvmlGpmSampleGet code=999 at=4 count=1"
	scenario 1 "fail nvmlGpmMetricsGet code=999 at=3"
	scenario 2 "fail nvmlDeviceGetTotalEnergyConsumption code=15 at=5"
	scenario 3 "fail nvmlDeviceGetFieldValues code=999 at=2"
	scenario 4 "fail nvmlGpmQueryDeviceSupport code=999"
	scenario 5 "fail nvmlDeviceGetMinorNumber code=3"
	scenario 6 "fail nvmlGpmSampleAlloc code=20"
	scenario 7 "fail nvmlDeviceGetCount_v2 code=1"
	for k in {0..7}; do begin "$k" 3; done
	for k in {0..7}; do finish "$k"; done
	for k in {0..7}; do never_wrong "$k" 0 3400; done
	covers 0 2700 3400
	same - "$(usage 4 5 gres/gpusm)"
	covers 7 none
	clean
}

# Each function, each of these codes, at its first calls. Where one fails for good in
# the middle of a reading, one GPU was measured for an interval more than the other:
# the mean, over what was measured, is up to 4 points nearer to that one's.
@test "every call that can fail" {
	[[ -n ${DDP_LONG:-} ]] || skip "with DDP_LONG=1"
	n=0
	for fn in $(nm -D --defined-only "$CLUSTER_DIR/gpu/library.real" |
		awk '$3 ~ /^nvml/ { print $3 }'); do
		for rule in "code=3" "code=999" "code=15 at=2" "code=999 at=3 count=2" \
			"code=25 at=4"; do
			scenario "$n" "fail $fn $rule"
			begin "$n" 1.5
			((++n == 8)) || continue
			for k in {0..7}; do
				finish "$k" && never_wrong "$k" 0 1900 4 || {
					cat "$CLUSTER_DIR/gpu/scenario.${NODE[k]}"
					return 1
				}
			done
			n=0
		done
	done
	for ((k = 0; k < n; k++)); do finish "$k"; never_wrong "$k" 0 1900 4; done
	clean
}

@test "counters wrap and begin anew" {
	GPU_IS="pcie=fields nvlink=fields"
	scenario 0 "0:base pcie_rx 4294900000" "1:base pcie_tx 4294967295" \
		"0:base nvlink_rx 4611686018427000000" \
		"1:base energy 9007199254740000"
	scenario 1 "0:reset 1.6" "1:reset 1.6"
	GPU_IS="pcie=fields nvlink=fields gpm=no"
	scenario 2 "0:base pcie_rx 4294900000" "1:reset 1.6"
	for k in 0 1 2; do begin "$k" 3; done
	for k in 0 1 2; do finish "$k"; done
	# Without samples of the rate, rounds of 32 bits cannot be told.
	never_wrong 0 2700 3400
	in_range 0 joules "$(usage 0 5 gres/gpuenergy)" 1080 1360
	in_range 0 NVLink "$(usage 0 5 ic/nvlink)" 5400000000 6800000000
	never_wrong 1 2400 3400
	same - "$(usage 2 5 gres/gpusm)"
	never_wrong 2 2400 3400
	in_range 2 gpuidle "$(usage 2 5 gres/gpuidle)" 0 0
	clean
}

@test "the driver's library breaks the sampler, and nothing else" {
	broken_library
	mode 0 segv
	mode 1 abort
	mode 2 exit
	mode 3 print
	mode 4 init segv
	mode 5 init exit
	mode 6 sockets
	mode 7 stop
	for k in {0..7}; do begin "$k" 2.8; done
	for k in {0..7}; do finish "$k"; done
	for k in 0 1 2; do covers "$k" 500 1500; done
	covers 3 2500 3200
	for k in 4 5; do covers "$k" none; done
	for k in 6 7; do never_wrong "$k" 0 2900; done
	for k in {0..7}; do same "" "$(cat "$k.out" "$k.err")"; done
	clean
}

@test "something else in the sampler's place" {
	broken_sampler
	words=(false forever random gpus nan percent joules bytes
		idle early late backward text size)
	for ((i = 0; i < ${#words[@]}; i += 7)); do
		for k in {0..6}; do
			mode "$k" "${words[i + k]}"
			begin "$k" 1
		done
		mode 7 good
		begin 7 1
		for k in {0..7}; do finish "$k"; done
		for k in {0..6}; do
			case ${words[i + k]} in
			nan | percent)
				same - "$(usage "$k" 5 gres/gpusm)" ;;
			size) same 10 "$(usage "$k" 5 gres/gpuenergy)" ;;
			joules | bytes | idle | early | late | backward | gpus)
				covers "$k" none
				logged "$k" "cannot be" ;;
			*) covers "$k" none ;;
			esac || { echo "${words[i + k]}"; return 1; }
		done
		same 10 "$(usage 7 5 gres/gpuenergy)"
	done
	clean
}

@test "the sampler cannot be run" {
	s=$CLUSTER_DIR/bin/ddp-gpu-sampler
	begin_and_wait() { begin "$1" 2 && running "$1" && sleep 0.3; }
	rm "$s" && begin_and_wait 0
	put_root ddp-gpu-sampler bin sampler.real
	chmod 644 "$s" && begin_and_wait 1
	chmod 775 "$s" && begin_and_wait 2
	chmod 755 "$s" && chown nobody "$s" && begin_and_wait 3
	rm "$s" && mkdir "$s" && begin_and_wait 4
	rmdir "$s" && echo nonsense >"$s" && chmod 755 "$s" && begin_and_wait 5
	put_root ddp-gpu-sampler bin sampler.real
	for k in {0..5}; do finish "$k"; covers "$k" none; done
	logged 0 "No such file or directory"
	logged 1 "Permission denied"
	for k in 2 3 4; do logged "$k" "is not used"; done
	logged 5 "Exec format error"
	clean
}

# Linux before 5.3, or a container that refuses them.
@test "a kernel without pidfds" {
	command -v gcc >/dev/null || skip "no gcc"
	gcc -static -O1 -Wall -o "$CLUSTER_TMP/kernel" "$TESTS/acct_fault_kernel.c"
	p=$(cluster_pid "slurmd-${NODE[7]}")
	kill "$p"
	wait_until 15 pid_gone "$p"
	exec_old &
	old=$!
	wait_until 15 slurmd_again
	begin 7 3
	finish 7
	covers 7 2700 3500
	begin 7 3
	sampling 7
	sleep 0.7
	s=$(sampler_of 7)
	kill -STOP "$s"
	finish 7
	covers 7 300 2900
	pid_gone "$s"
	begin 7 3
	sampling 7
	sleep 0.7
	kill -KILL "$(sampler_of 7)"
	finish 7
	covers 7 300 2900
	kill "$old"
	wait_until 15 pid_gone "$old"
	faulty_repair
	clean
}

# The second time that it says so.
slurmd_again()
{
	(($(grep -c 'slurmd started on' \
		"$CLUSTER_DIR/log/slurmd-${NODE[7]}.log") >= 2))
}

exec_old()
{
	exec "$DEVCLUSTER" --dir "$CLUSTER_DIR" run -- "$CLUSTER_TMP/kernel" \
		slurmd -D -N "${NODE[7]}" </dev/null >/dev/null 2>&1 3>&-
}
