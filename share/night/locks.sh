# shellcheck shell=bash disable=SC2034,SC2154
# locks.sh: what only one job has at a time, for job.sh: products, devices, and the turn to begin.
#
# Several makes, on one machine or on several that share the folder, may come to the same product: one makes it, the others
# wait for its lock, OUT/lock/PRODUCT, and find what is done. The lock is a symbolic link to the identity of its owner and the
# product, HOST:PID:START:JOB:RESTART/PRODUCT, which is made in one step, also by a file server. It is taken over where its owner has ended,
# is an earlier start of the same Slurm job, or has not renewed it for LEASE seconds. Such an owner may go on: a machine that
# was away comes back. Programs write files of their own and rename them when they are complete, so both make the same product;
# an owner that has lost its lock removes and records nothing.

# ---- products ----

lease=${LEASE:-180}
# start FILE: sets began to when a process did, in ticks since the machine: the 22nd field of its /proc/PID/stat
start() {
    local stat
    began=
    { read -r stat <"$1"; } 2>/dev/null || return
    read -ra stat <<<"${stat##*) }"
    began=${stat[19]}
}
start /proc/$$/stat
me=$HOSTNAME:$$:$began:${SLURM_JOB_ID:-}:${SLURM_RESTART_COUNT:-0}

mine() { [ "$(readlink "$lock")" = "$me/${product##*/}" ]; }

# of_mine ACTION...: what find does with the locks that this process holds; others' may vanish meanwhile
of_mine() { find "$OUT/lock" -maxdepth 1 -lname "$me/*" "$@" 2>/dev/null; }

# date_back SINCE: gives the product, which was made without its lock, the time when that was taken, or that of its newest input, which
# this job may have made since: what others have made of the product meanwhile is up to date.
date_back() {
    local f input
    touch -c -d "@$1" "$product"
    for f in ${needs[@]+"${needs[@]}"}; do
        for input in "${f%.failed}" "${f%.failed}.failed"; do
            [ ! "$input" -nt "$product" ] || touch -c -r "$input" "$product"
        done
    done
}

# over LINK: whether the lock of this owner may be taken
over() {
    local host pid started job restart now=$lock.$HOSTNAME.$$ age
    IFS=: read -r host pid started job restart <<<"${1%/*}"
    if [ "$host" = "$HOSTNAME" ]; then
        start "/proc/$pid/stat"
        [ "$began" = "$started" ] || return 0
    fi
    if [ -n "$job" ] && [ "$job" = "${SLURM_JOB_ID:-}" ] && [ "$restart" -lt "${SLURM_RESTART_COUNT:-0}" ]; then
        return 0
    fi
    # Both times are the file server's.
    : >"$now"
    age=$(stat -c %Y "$now" "$lock" 2>/dev/null | { read -r a && read -r b && echo $((a - b)); })
    rm -f "$now"
    [ "${age:-0}" -gt "$lease" ]
}

# While any lock is held, a process renews them.
renew() {
    [ -z "${renewer:-}" ] || return 0
    trap 'of_mine -delete; leave_line' EXIT
    # It ends with the process that holds the other end of its pipe.
    exec {renewer}> >({
        while :; do
            read -rt $((lease / 4 + 1))
            [ $? -gt 128 ] || exit
            of_mine -exec touch -h {} +
        done
    } >/dev/null 2>&1)
}

# Takes the locks of all products, where all are free: sets claimed, when each was taken.
take_locks() {
    local i name moment
    local -A number=()
    renew
    ln -s -t "$OUT/lock" "${products[@]/#*\//$me/}" 2>/dev/null || {
        of_mine -delete
        return 1
    }
    for i in "${!products[@]}"; do number[${products[i]##*/}]=$i; done
    while read -r name moment; do claimed[${number[$name]}]=$moment; done < <(of_mine -printf '%f %T@\n')
}

# Takes the lock, however long that lasts.
take_lock() {
    local owner now tries=0
    # A process that is stopped here may have lost its lock when it goes on.
    until { ln -s "$me/${product##*/}" "$lock" 2>/dev/null || mine; } && since=$(stat -c %.Y "$lock" 2>/dev/null) && mine; do
        owner=$(readlink "$lock")
        if [ -z "$owner" ]; then
            # It was released, or it cannot be made.
            [ $((tries += 1)) -le 100 ] || ln -s "$me/${product##*/}" "$lock" || exit
            continue
        fi
        tries=0
        if ! over "$owner"; then
            sleep 0.2
        elif mv -T "$lock" "$lock.$HOSTNAME.$$" 2>/dev/null; then
            # Only one takes a lock away; where another did, and has it now, that one gets it back.
            now=$(readlink "$lock.$HOSTNAME.$$")
            [ "$now" = "$owner" ] || ln -s "$now" "$lock" 2>/dev/null
            rm -f "$lock.$HOSTNAME.$$"
        fi
    done
    renew
}

# Whether another make has made the product meanwhile, or knows that it cannot be made: newer than all inputs.
settled() {
    local f what=$product
    [[ ! ${MAKEFLAGS:-} =~ ^[[:alpha:]]*B ]] || return
    if [ ! -e "$product" ]; then
        what=$product.failed
        [ -e "$what" ] || return
        [ "$(stat -c %Y "$what")" -gt 0 ] || return
    fi
    for f in ${needs[@]+"${needs[@]}"}; do
        [ ! "${f%.failed}" -nt "$what" ] && [ ! "${f%.failed}.failed" -nt "$what" ] || return
    done
}

# ---- devices ----

# processes of this job, each with the index of its place (make_all)
processes=() taken=()
# A device is a lock of this machine, which the kernel releases with the process, however that ends. All are tried ten times a
# second, and one in turn is waited for meanwhile. take_device now: fails where none is free; each try is a process, so the places
# of this job's own programs are not tried.
tried=0
take_device() {
    local i k list turn=0 moment
    local -A own=()
    [ ! "${1:-}" ] || [ $((${EPOCHREALTIME/[^0-9]/} - tried)) -gt 100000 ] || return
    # shellcheck disable=SC2153 # it is not DEVICE
    read -ra list <<<"$DEVICES"
    for k in ${processes[@]+"${!processes[@]}"}; do
        [ ! "${1:-}" ] || has_ended "$k" || own[${taken[k]:-none}]=1
    done
    while :; do
        for i in "${!list[@]}"; do
            [ -z "${own[$i]:-}" ] || continue
            exec 9>"$OUT/.device-$HOSTNAME-$i" || return
            moment=0
            [ "$i" -ne "$turn" ] || [ "${1:-}" ] || moment=0.1
            if flock -w $moment 9; then
                place=$i
                export DEVICE=${list[i]}
                return
            fi
        done
        exec 9>&-
        tried=${EPOCHREALTIME/[^0-9]/}
        [ ! "${1:-}" ] || return
        turn=$(((turn + 1) % ${#list[@]}))
    done
}

# ---- turns ----

# Jobs with queues begin one after another on a machine: else all are at the same stage at the same time, and wait for the same
# thing. Those that begin together stand in line by their first exposures: else the first may come last, and make waits for it.
# take_turn: fails where another job has the turn, or is before this one. end_turn: gives it back.
turn='' ticket=''
stand_in_line() {
    local name=${products[0]##*/}
    ticket=$OUT/.turn-$HOSTNAME-${name##*-}-$name
    echo "$$ $began" >"$ticket" || exit
}
leave_line() {
    [ -z "$ticket" ] || rm -f "$ticket"
    ticket=
}
take_turn() {
    local waits pid started other
    [ -z "$turn" ] || return 0
    [ $((${EPOCHREALTIME/[^0-9]/} - tried)) -gt 100000 ] || return
    set +f
    waits=("$OUT/.turn-$HOSTNAME-"*)
    set -f
    for other in "${waits[@]}"; do
        [ "$other" != "$ticket" ] || break
        { read -r pid started <"$other"; } 2>/dev/null || continue
        start "/proc/$pid/stat"
        if [ "$began" = "$started" ]; then
            tried=${EPOCHREALTIME/[^0-9]/}
            return 1
        fi
        rm -f "$other"
    done
    exec {turn}>"$OUT/.turn-$HOSTNAME" || exit
    flock -n "$turn" || {
        end_turn
        tried=${EPOCHREALTIME/[^0-9]/}
        return 1
    }
    leave_line
}
end_turn() {
    [ -z "$turn" ] || exec {turn}>&-
    turn=
}
