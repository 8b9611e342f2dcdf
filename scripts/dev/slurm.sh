#!/usr/bin/env bash
# A real Slurm on this one machine: two nodes of two cores and two pretended GPUs each, preemption, requeue.
#   eval "$(scripts/dev/slurm.sh up)"     start it (as root), and use it in this shell
#   scripts/dev/slurm.sh down             stop it and remove its files
# Debian: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
# GOLF_SLURM_DIR moves its files, GOLF_SLURM_PORT its four ports. Jobs of partition `low` give way to those of `main`.
set -euo pipefail

dir=${GOLF_SLURM_DIR:-${TMPDIR:-/tmp}/golf-slurm}
port=${GOLF_SLURM_PORT:-26817}
host=$(hostname)
export SLURM_CONF=$dir/slurm.conf

fail() {
    echo "error: $1" >&2
    exit 2
}

check() {
    for program in munged slurmctld slurmd sbatch; do
        command -v $program >/dev/null ||
            fail "$program is missing: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
    done
    [ "$(id -u)" = 0 ] || fail "slurmd starts other users' jobs and munged checks owners: run this as root"
    [ ! -e "$dir/slurmctld.pid" ] || fail "$dir is in use: stop it with '$0 down' first"
}

write_configuration() {
    mkdir -p "$dir"/{munge,sock,state,log,spool/n1,spool/n2}
    chmod 711 "$dir/munge"
    head -c 128 /dev/urandom >"$dir/munge/munge.key"
    # munged refuses a key that other users can read.
    chmod 600 "$dir/munge/munge.key"
    # Pretended GPUs are character devices that every machine has: Slurm counts them, nobody opens them.
    printf '%s\n' 'NodeName=n[1-2] Name=gpu File=/dev/null' 'NodeName=n[1-2] Name=gpu File=/dev/zero' >"$dir/gres.conf"
    cat >"$SLURM_CONF" <<CONF
ClusterName=loop
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# Credentials are short-lived, or a requeued job waits two minutes for its old one to expire.
AuthInfo=socket=$dir/sock/munge.socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/jobcomp.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
$send_user_signal
JobRequeue=1
ReturnToService=2
MinJobAge=300
KillWait=5
SlurmdTimeout=60
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=2 Boards=1 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=8000 Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=low Nodes=n[1-2] MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=10
CONF
}

up() {
    check
    # The key that lets a preempted job get its user signal moved between versions; an unknown key is fatal.
    case $(slurmctld -V) in
    *" 2[0-2]."* | *" 22."* | *" 21."* | *" 20."*) send_user_signal=SlurmctldParameters=preempt_send_user_signal ;;
    *) send_user_signal=PreemptParameters=send_user_signal ;;
    esac
    write_configuration
    munged --force --key-file="$dir/munge/munge.key" --socket="$dir/sock/munge.socket" --pid-file="$dir/munged.pid" \
        --log-file="$dir/log/munged.log" --seed-file="$dir/munge/seed"
    slurmctld -i >&2
    slurmd -N n1 >&2
    slurmd -N n2 >&2
    for _ in $(seq 100); do
        [ "$(sinfo -h -o %T 2>/dev/null | sort -u)" != idle ] || { echo "export SLURM_CONF=$SLURM_CONF" && return; }
        sleep 0.1
    done
    tail -n 5 "$dir"/log/*.log >&2
    fail "the nodes did not become idle within 10 s; see $dir/log"
}

down() {
    scancel --user="$(id -un)" 2>/dev/null || true
    for name in slurmd.n1 slurmd.n2 slurmctld munged; do
        [ ! -f "$dir/$name.pid" ] || kill "$(cat "$dir/$name.pid")" 2>/dev/null || true
    done
    for _ in $(seq 50); do
        pgrep -F "$dir/slurmctld.pid" >/dev/null 2>&1 || break
        sleep 0.1
    done
    rm -rf "$dir"
}

case ${1:-} in
up) up ;;
down) down ;;
*) fail "say 'up' or 'down'" ;;
esac
