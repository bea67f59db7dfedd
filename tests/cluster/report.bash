# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # for the tests; bats sets output
#
# For the tests of ddp-report: figures go into the steps' records by SQL, so
# that they are exact and need no plugin. After lib and launch.

REPORT_TRES=gres/gpu,gres/gpusm,gres/gpumembw,ic/nvlink,ic/pcie,gres/gpuenergy,gres/gpuidle
SCHEMA=$TESTS/../../doc/ddp-report.schema.json
# The first second of the jobs' day: long before all that runs now.
DAY=1704153600	# 2024-01-02T00:00:00Z
export TZ=UTC

report() { in_cluster ddp-report "$@"; }

sql()
{
	timeout 30 mariadb --no-defaults -S "$CLUSTER_DIR/db/sock" -N -B \
		slurm_acct_db -e "$1"
}

cluster_name() { sed -n 's/^ClusterName=//p' "$CLUSTER_DIR/etc/slurm.conf"; }

# tres "gpusm=90 nvlink=5": with the database's ids, "1002=90,1004=5".
tres()
{
	local pair id out=
	for pair in $1; do
		id=$(sql "SELECT id FROM tres_table WHERE name='${pair%%=*}'")
		[[ -n $id ]] || return 1
		out+=${out:+,}$id=${pair#*=}
	done
	printf '%s' "$out"
}

step_number()
{
	case $1 in
	batch) echo -5 ;;
	extern) echo -4 ;;
	*) echo "$1" ;;
	esac
}

# db_index JOB [RUN]: of its last run, or of the RUN-th, in the order of their
# submission.
db_index()
{
	local where
	where="id_job=$1 ORDER BY time_submit"
	if (($# > 1)); then
		where+=" LIMIT $(($2 - 1)),1"
	else
		where+=" DESC LIMIT 1"
	fi
	sql "SELECT job_db_inx FROM $(cluster_name)_job_table WHERE $where"
}

# fill INDEX STEP IN OUT MAX: figures as the plugin would write them.
fill()
{
	sql "UPDATE $(cluster_name)_step_table SET tres_usage_in_tot='$(tres "$3")',
		tres_usage_out_tot='$(tres "$4")', tres_usage_out_max='$(tres "$5")'
		WHERE job_db_inx=$1 AND id_step=$(step_number "$2")"
}

# job_time INDEX FROM SECONDS: it ran then, FROM seconds after DAY.
job_time()
{
	local from=$((DAY + $2))
	sql "UPDATE $(cluster_name)_job_table SET time_submit=$from - 10,
		time_eligible=$from - 10, time_start=$from,
		time_end=$from + $3, time_suspended=0 WHERE job_db_inx=$1"
}

# step_time INDEX STEP FROM TO: in seconds after DAY.
step_time()
{
	sql "UPDATE $(cluster_name)_step_table SET time_start=$DAY + $3,
		time_end=$DAY + $4 WHERE job_db_inx=$1
		AND id_step=$(step_number "$2")"
}

# ended JOB...: the accounting has the end of each and of its steps.
ended()
{
	local j
	for j; do
		[[ $(sql "SELECT COUNT(*) FROM $(cluster_name)_job_table j
			LEFT JOIN $(cluster_name)_step_table s USING (job_db_inx)
			WHERE (id_job=$j OR id_array_job=$j OR het_job_id=$j)
			AND (j.time_end=0 OR s.time_end=0)") == 0 ]] || return 1
		[[ -n $(db_index "$j") ]] || return 1
	done
}

# value JOB STEP COLUMN: a field of ddp-report --parsable's output in $output.
value()
{
	awk -F'|' -v job="$1" -v step="$2" -v name="$3" '
		NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i
			if (!at) { print "no column " name; exit } next }
		$1 == job && $2 == step { print $at; n++ }
		END { if (at && n != 1) print n + 0 " rows" }' <<<"$output"
}

# has JOB STEP COLUMN=VALUE...
has()
{
	local pair got
	for pair in "${@:3}"; do
		got=$(value "$1" "$2" "${pair%%=*}")
		[[ $got == "${pair#*=}" ]] && continue
		printf '%s of %s.%s is "%s", not "%s"\n%s\n' "${pair%%=*}" \
			"$1" "$2" "$got" "${pair#*=}" "$output"
		return 1
	done
}

# of_schema: $output is a document of the schema.
of_schema() { "$PYTHON" "$TESTS/json_schema.py" "$SCHEMA" <<<"$output"; }

# json EXPRESSION: Python on the document d in $output; prints the value.
json()
{
	"$PYTHON" -c 'import json, sys
d = json.load(sys.stdin)
print(json.dumps(eval(sys.argv[1])))' "$1" <<<"$output"
}
