#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The control channel over IPv6 alone.
#
# shellcheck disable=SC2030,SC2031,SC2154 # bats
# shellcheck disable=SC2034 # variables of fault.bash

load lib
load launch
load fault
load cut

setup_file()
{
	[[ -e /proc/net/if_inet6 ]] || skip "no IPv6 here"
	cut_up --netns=6
}

teardown_file() { launch_down; }
setup() { cut_setup; }
teardown() { cut_teardown; }

@test "all well, and a failure, between networks" { cut_all_well; }

@test "a node is cut off while its rank runs" { cut_lost 2; }

@test "--ddp-control=prefer without a way to the controller" {
	OPTS=(--ddp-start-timeout=4 --ddp-control=prefer)
	without_control drop "${NODE[@]}" -- '*:join,print=hello'
	finish_step 20
	ended 0 20
	says_times 3 hello
	says_times 1 "ddp: warning"
	cut_clean
}

@test "afterwards the logs are clean" { logs_clean; }
