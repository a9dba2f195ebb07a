#!/usr/bin/env bash
# Starts a run under Slurm, or resumes one whose jobs have ended.
#
#	deploy/slurm/run.sh [-s OPTIONS] [-w OPTIONS] [-x SPARES] RUN_DIR run.yaml [-- FLAGS]
#
# RUN_DIR is a folder that all nodes see. run.yaml has the settings, with a line for the number of servers and one for
# that of workers. OPTIONS are options of sbatch: -s for the job of the servers, -w for the array of workers. SPARES
# more workers wait for the place of one that goes. FLAGS are flags of kintsugi worker. docs/slurm.md says where files
# are.
set -euo pipefail

usage() { echo "usage: $0 [-s SBATCH_OPTIONS] [-w SBATCH_OPTIONS] [-x SPARE_WORKERS] RUN_DIR run.yaml [-- FLAGS_OF_WORKERS]" >&2; exit 2; }

for_servers="" for_workers="" spares=0
while getopts s:w:x: option; do
	case $option in
	s) for_servers=$OPTARG ;;
	w) for_workers=$OPTARG ;;
	x) spares=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] && [[ $spares =~ ^[0-9]{1,4}$ ]] || usage
mkdir -p "$1/logs"
run=$(cd "$1" && pwd) settings=$2
shift 2
if [ $# -gt 0 ]; then
	[ "$1" = -- ] || usage
	shift
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
kintsugi=${KINTSUGI:-$root/bin/kintsugi}
[ -x "$kintsugi" ] || { echo "$0: there is no program $kintsugi: run make build, or set KINTSUGI to where it is" >&2; exit 1; }

# setting NAME prints the value of a setting in the file.
setting() { sed -n "s/^$1:[[:space:]]*\"\{0,1\}\([^\"#]*[^\"#[:space:]]\).*/\1/p" "$settings" | tail -n 1; }

servers=$(setting servers) workers=$(setting workers)
[[ $servers =~ ^[1-9][0-9]*$ && $workers =~ ^[1-9][0-9]*$ ]] ||
	{ echo "$0: $settings must say how many servers and workers there are: a line such as \"servers: 2\" and one such as \"workers: 8\"" >&2; exit 1; }

# Servers keep their shards in memory outside their processes with these ways to recover: a killed server then finds its
# shard there. gold, the default, does so with one replica of each shard.
outside=no
case $(setting recovery):$(setting replicas):$servers in
stateless* | auto:* | gold:1:* | :1:* | gold::1 | ::1) outside=yes ;;
esac

if [ -s "$run/jobs" ] && running=$(squeue --noheader --jobs="$(cat "$run/jobs")" 2>/dev/null) && [ -n "$running" ]; then
	echo "$0: jobs of this run are there: end them before it is begun again: scancel $(tr , ' ' <"$run/jobs")" >&2
	exit 1
fi
[ "$settings" -ef "$run/run.yaml" ] || cp "$settings" "$run/run.yaml"
rm -f "$run/over" "$run/address"

# With spares no worker has a place of its own: any of them takes one that is empty.
place=own
[ $((10#$spares)) -eq 0 ] || place=auto

# OPTIONS are split into words, and override what is set here.
# shellcheck disable=SC2086
job=$(sbatch --parsable --nodes="$servers" --output="$run/logs/servers.log" $for_servers "$here/servers.sbatch" "$kintsugi" "$run" "$servers" "$outside")
job=${job%%;*}
# shellcheck disable=SC2086
array=$(sbatch --parsable --array="0-$((workers + 10#$spares - 1))" --dependency="after:$job" --output="$run/logs/worker-%a.log" $for_workers "$here/workers.sbatch" "$kintsugi" "$run" $place "$@") ||
	{ scancel "$job"; exit 1; }
array=${array%%;*}
echo "$job,$array" >"$run/jobs"
echo "servers: job $job; workers: job $array. Logs: $run/logs. To end the run: scancel $array $job"
