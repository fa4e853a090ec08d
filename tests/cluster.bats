# share/reduce.mk on several machines: several makes of one folder, and a night under Slurm.

load common
load fake-night

# ---- several makes of one folder ----

# begin NAME=VALUE... : a make of the whole night in the background, in a process group of its own, whose number is in pid
begin() {
    setsid env "$@" make -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM OUT=out \
        PAGE= -j3 >first.log 2>&1 3>&- &
    pid=$!
}

# state: products with their sizes and times
state() { (cd out && find . -maxdepth 1 -name "*.h5" -o -maxdepth 1 -name "*.fits" -o -maxdepth 1 -name "*.failed" | sort | xargs stat -c "%n %s %Y"); }

# whole: no record, and no file of a process that ended
whole() {
    run ! records out
    [ -z "$(find out -name '.*failed*' -o -name '*.h5.[0-9]*')" ]
}

@test "two makes of one folder: each product is made once" {
    fake_programs
    empty_night b1 r1
    begin LEASE=180
    quick -j3 >log
    wait $pid
    [ "$(made_by | uniq -d)" = '' ]
    [ "$(made_by | wc -l)" -eq 52 ]
    [ -z "$(ls -A out/lock)" ]
    whole
}

@test "a make that is killed holds nothing back; another one that is interrupted removes nothing" {
    fake_programs
    empty_night b1 r1
    echo sframe-b1-0009.h5 >hold
    begin LEASE=180
    wait_for $pid test -e held-sframe-b1-0009.h5
    kill -9 -- -$pid
    [ -L out/lock/sframe-b1-0009.h5 ]
    quick -j3 >log
    run ! records out
    state >before
    # it has begun a product which another one makes meanwhile
    rm -r held-* out/sframe-b1-0009.h5
    begin SLURM_JOB_ID=7
    wait_for $pid test -e held-sframe-b1-0009.h5
    kill -STOP -- -$pid
    SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1 quick >log
    state >after
    kill -TERM -- -$pid
    kill -CONT -- -$pid
    wait $pid || true
    state | diff after -
    run ! records out
    diff <(sed 's/ [0-9]*$//' before) <(sed 's/ [0-9]*$//' after)
}

# A run stops with all its jobs at work: one before it has made a product, one before it fails, and one with a product that it makes
# of another of its own; it goes on when another run has made everything.
first_run_stops() {
    fake_programs
    empty_night b1 r1
    printf '%s\n' sframe-b1-0009.h5 flat-r1.h5 frame-b1-0008.h5 >hold
    begin "$1"
    wait_for $pid test -e held-sframe-b1-0009.h5 -a -e held-flat-r1.h5 -a -e held-frame-b1-0008.h5
    kill -STOP -- -$pid
    (export "${@:2}" && quick -j3 >log)
    run ! records out
    state >after
    find out -name '*.h5' -type f -exec md5sum {} + | sort >sums
    echo 'flat-r1.h5 3' >bad
    touch go
    kill -CONT -- -$pid
    wait $pid
    # it has renamed its own sframe, with the same bytes
    grep -q 'out/sframe-b1-0009.h5' out/log/sframe-b1-0009.h5.log out/sframe-b1-0009.h5
    find out -name '*.h5' -type f -exec md5sum {} + | sort | diff sums -
    diff <(sed 's/ [0-9]*$//' after) <(state | sed 's/ [0-9]*$//')
    whole
    # what depends on its product is not made again, by itself or by the next
    diff <(grep -e standards -e spectra -e coadd -e rv after) <(state | grep -e standards -e spectra -e coadd -e rv)
    true | tee calls >bad
    quick -j3 >log
    [ ! -s calls ]
    [ -z "$(ls -A out/lock)" ]
}

@test "an element that is queued again while its first run goes on: the first spoils nothing" {
    first_run_stops SLURM_JOB_ID=7 SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1
}

@test "a machine that is away for longer than LEASE, and comes back, spoils nothing" {
    first_run_stops LEASE=1 LEASE=1
}

@test "a part of the night makes its own products alone" {
    fake_programs
    empty_night b1 r1 b2
    quick -n >log
    quick PART=camera-b1 -j3
    [ "$(made_by | xargs)" = 'flat-b1.h5 frame-b1-0007.h5 psf-b1.h5' ]
    true >calls
    # the flat of r1 is absent: what needs it fails
    quick PART=petal-1-0009 -j3
    [ "$(made_by | xargs)" = 'cframe-b1-0009.h5 frame-b1-0009.h5 psf-b1-0009.h5 sframe-b1-0009.h5 spectra-1-0009.h5 standards-1-0009.h5' ]
    grep -qx 'because: .*out/flat-r1.h5' out/sframe-r1-0009.h5.failed
    quick PART=petal-2-0009
    [ -e out/sframe-b2-0009.h5.failed ]
    run quick PART=petal-3-0009
    [ "$status" -eq 2 ]
    [[ $output == *"no such part"* ]]
    quick -j3 >log
    [ "$(records out)" = '' ]
}

# settings: of that night, as one text for a shell
settings="IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM PAGE="

# ---- machines by ssh ----

# start_sshd: a server on a port of this machine with keys of its own, and hosts, a file of three machines: this one under two
# names, and one that does not answer; skips the test where it cannot be had.
start_sshd() {
    need_program ssh ssh-keygen parallel
    local sshd n login
    sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd) || skip "sshd is not installed"
    mkdir -m 700 ssh
    ssh-keygen -q -t ed25519 -N '' -f ssh/host && ssh-keygen -q -t ed25519 -N '' -f ssh/user && cp ssh/user.pub ssh/authorized
    [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
    port=$((40000 + BASHPID * 2 % 20000))
    printf '%s\n' "ListenAddress 127.0.0.1" "Port $port" "HostKey $PWD/ssh/host" "AuthorizedKeysFile $PWD/ssh/authorized" \
        "PidFile $PWD/ssh/pid" "StrictModes no" "UsePAM no" "PermitRootLogin yes" "PasswordAuthentication no" >ssh/config
    "$sshd" -f "$PWD/ssh/config" -E "$PWD/ssh/log" 3>&- || skip "sshd does not start: $(tail -n 1 ssh/log)"
    printf '%s\n' "Port $port" "IdentityFile $PWD/ssh/user" "UserKnownHostsFile $PWD/ssh/known" "StrictHostKeyChecking no" \
        "LogLevel ERROR" "BatchMode yes" >ssh/user-config
    login="ssh -F $PWD/ssh/user-config"
    for ((n = 0; n < 50; n++)); do
        ! $login 127.0.0.1 true 2>ssh/error || break
        sleep 0.1
    done
    [ "$n" -lt 50 ] || skip "no login by ssh: $(tail -n 1 ssh/error)"
    printf '%s\n' "2/$login 127.0.0.1" "2/$login localhost" "1/$login -p $((port + 1)) 127.0.0.1" >hosts
    export PARALLEL_HOME=$PWD/parallel
    mkdir "$PARALLEL_HOME" && touch "$PARALLEL_HOME/will-cite"
}

@test "a night on three machines by ssh, of which one does not answer" {
    start_sshd
    fake_programs
    empty_night b1 r1 b2
    echo 'flat-r1.h5 3' >bad
    sed -i '1a echo "${SSH_CONNECTION:+ssh}" >>machines' fake/h5merge fake/specx-extract
    run quick -s -j3 hosts PARALLEL=--joblog=+jobs
    echo "$output"
    [ "$status" -eq 2 ]
    [ "$(records out | xargs)" = 'cframe-r1-0008.h5 cframe-r1-0009.h5 cframe-r1-0010.h5 cframe-r1-0011.h5 flat-r1.h5 sframe-r1-0008.h5 sframe-r1-0009.h5 sframe-r1-0010.h5 sframe-r1-0011.h5' ]
    [ "$(made_by | uniq -d)" = '' ]
    grep -qx 'spectra  *8  *0  *0' <<<"$output"
    [ "$(grep -c ssh machines)" -eq "$(wc -l <machines)" ]
    cut -f 2,7 jobs | sort | uniq -c
    grep -q 'user-config localhost' jobs
    grep -q 'user-config 127.0.0.1' jobs
    state >before
    quick -s -j3 hosts || true
    state | diff before -
}

# ---- Snakemake ----

@test "a night by the Snakefile: once, and what depends on a file that changed" {
    need_program snakemake
    fake_programs
    empty_night b1 r1
    export XDG_CACHE_HOME=$PWD/cache
    snake() { snakemake -q -s "$SPX_ROOT/share/Snakefile" -j3 --config night=n1 out=out settings="$settings"; }
    echo 'sframe-b1-0009.h5 3' >bad
    run snake
    [ "$status" -eq 1 ]
    [ "$(records out | xargs)" = 'cframe-b1-0009.h5 sframe-b1-0009.h5' ]
    [ "$(made_by | uniq -d)" = '' ]
    grep -qx coadd-50.h5 <(made_by)
    true | tee calls >bad
    echo >>in/b1_n1_0009.img
    snake
    [ "$(made_by | xargs)" = 'cframe-b1-0009.h5 cframe-r1-0009.h5 coadd-51.h5 frame-b1-0009.h5 psf-b1-0009.h5 rv-51.h5 rvtab-51.fits sframe-b1-0009.h5 spectra-1-0009.h5 standards-1-0009.h5' ]
    quick -s status
}

# ---- Slurm ----

# start_slurm: a Slurm of three nodes on this machine, in slurm/, with an authentication service of its own, as the user who
# runs the test; skips the test, with the reason, where it cannot be had.
start_slurm() {
    need_program slurmctld slurmd munged sbatch
    local me port host n
    me=$(id -un) host=$(hostname -s)
    mkdir -m 755 slurm slurm/state slurm/spool
    export SLURM_CONF=$PWD/slurm/slurm.conf
    head -c 128 /dev/urandom >slurm/key
    chmod 600 slurm/key
    # Folders above may be writable for others, as /tmp is: --force.
    munged --force --socket="$PWD/slurm/munge.socket" --key-file="$PWD/slurm/key" --pid-file="$PWD/slurm/munged.pid" \
        --log-file="$PWD/slurm/munged.log" --seed-file="$PWD/slurm/munged.seed" 3>&- 2>slurm/munged.err ||
        skip "munged does not start: $(tail -n 1 slurm/munged.err)"
    port=$((20000 + BASHPID * 4 % 20000))
    while for n in 0 1 2 3; do ! (true <>/dev/tcp/127.0.0.1/$((port + n))) 2>/dev/null || break; done && [ "$n" -lt 3 ]; do
        port=$((port + 4))
    done
    cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$PWD/slurm/munge.socket
SlurmUser=$me
SlurmdUser=$me
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=1
ReturnToService=2
SlurmctldPidFile=$PWD/slurm/slurmctld.pid
SlurmctldLogFile=$PWD/slurm/slurmctld.log
SlurmdPidFile=$PWD/slurm/slurmd-%n.pid
SlurmdLogFile=$PWD/slurm/slurmd-%n.log
StateSaveLocation=$PWD/slurm/state
SlurmdSpoolDir=$PWD/slurm/spool/%n
NodeName=n[1-3] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 3))] CPUs=1
PartitionName=p Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP
END
    slurmctld 3>&- || skip "slurmctld does not start: $(tail -n 1 slurm/slurmctld.log)"
    for n in n1 n2 n3; do
        slurmd -N $n 3>&- || skip "slurmd does not start: $(tail -n 1 slurm/slurmd-$n.log)"
    done
    for ((n = 0; n < 100; n++)); do
        [ "$(sinfo -h -t idle -o %D)" != 3 ] || return 0
        sleep 0.1
    done
    skip "no Slurm of three nodes: $(tail -n 1 slurm/slurmctld.log)"
}

# What the test has started, if it failed, too.
teardown() {
    local f
    [ -z "${pid:-}" ] || kill -9 -- "-$pid" 2>/dev/null || true
    [ ! -s ssh/pid ] || kill "$(cat ssh/pid)" 2>/dev/null || true
    [ -d slurm ] || return 0
    touch go
    scancel -u "$(id -un)" 2>/dev/null && for ((f = 0; f < 50; f++)); do
        [ -n "$(squeue -h 2>/dev/null)" ] || break
        sleep 0.1
    done
    for f in slurm/slurmd-n*.pid slurm/slurmctld.pid slurm/munged.pid; do
        [ ! -s "$f" ] || kill "$(cat "$f")" 2>/dev/null || true
    done
}

@test "a night under Slurm, of which a node and a job are lost: the bytes of one machine" {
    start_slurm
    FIBRES=20 WIDTH=150 EXPOSURES=2 FAULTS=psf "$SPX_ROOT/share/night/simulate.sh" night
    cp -r night one
    local reduce=(make -s -f "$SPX_ROOT/share/reduce.mk" NIGHT=20201214 PAGE=) here=$PWD
    run "${reduce[@]}" -C one -j2
    [ "$status" -eq 2 ]
    # Under Slurm the first who makes one of these frames waits for a file go, and says which its process group is.
    mkdir waiting
    cat >waiting/specx-extract <<END
#!/usr/bin/env bash
frame=\$(grep -o 'frame-b0-0000000[34]' <<<"\$*")
if [ "\$frame" ] && mkdir $here/\$frame 2>/dev/null; then
    read -ra stat </proc/\$\$/stat
    echo "\${stat[4]}" >$here/\$frame/group
    until [ -e $here/go ]; do sleep 0.1; done
fi
exec $SPX_BUILD/bin/specx-extract "\$@"
END
    chmod +x waiting/specx-extract
    (cd night && PATH=$here/waiting:$PATH "${reduce[@]}" slurm)
    local server petal node group f n=0
    server=$(cat slurm/slurmctld.pid)
    # when COMMAND: waits for it, while Slurm has jobs
    when() { wait_for "$server" eval "$1 || [ -z \"\$(squeue -h)\" ]"; }
    when '[ -s frame-b0-00000003/group ] && [ -s frame-b0-00000004/group ]'
    # The node of the first exposure is lost for Slurm, which starts its element again, but goes on.
    read -r petal node < <(squeue -h -n 20201214-petal -o '%F_%K %N' | grep '_0 ')
    kill -9 "$(cat "slurm/slurmd-$node.pid")"
    scontrol update "nodename=$node" state=down reason=lost
    scontrol update "jobid=$petal" starttime=now
    # The element of the second is killed, and not started again.
    scancel --signal=KILL --full "${petal%_0}_1"
    when '[ -e night/redux/20201214/spectra-0-00000003.h5 ]'
    touch go
    group=$(cat frame-b0-00000003/group)
    when false
    until ! kill -0 -- "-$group" 2>/dev/null; do sleep 0.1; done
    grep -q 'Restarts=1' <(scontrol show job "$petal")
    grep -q 'JobState=CANCELLED' <(scontrol show job "${petal%_0}_1")
    # The last job makes what is absent, and says what failed.
    grep -qx 'spectra  *2  *0  *0' night/redux/20201214/log/slurm-20201214.out
    for f in one/redux/20201214/*.{h5,fits,failed}; do
        diff <(grep -av ^folder: "$f") <(grep -av ^folder: "night${f#one}")
        n=$((n + 1))
    done
    [ "$n" -eq "$(find night/redux/20201214 -maxdepth 1 -name '*.h5' -o -name '*.fits' -o -name '*.failed' | wc -l)" ]
    run "${reduce[@]}" -C night -n
    run ! grep 'specx-\|h5merge' <<<"$output"
}
