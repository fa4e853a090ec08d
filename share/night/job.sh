#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # variables of locks.sh, images.sh and queues.sh
# job.sh TARGET INPUT... -c COMMAND: the shell of reduce.mk. It runs the commands of a rule, and leaves a record beside a
# product that could not be made, TARGET.failed, so that make goes on and makes what depends on it from the rest:
#
#     product, status, because (inputs that are not there themselves), folder, command, and the last lines of the messages
#
# All messages of the programs are in OUT/log/PRODUCT.log.
#
# A command may be a list of products, each with a line "# PRODUCT: INPUT..." before its own command, in the order in which
# they are made; "list FILE" has them in a file, which is removed: an argument has 128 kB at most. Those that are to be made by
# one program with the same options are made by one process of it (queues.sh), and what it fails to make each by its own
# command, which leaves the record. An image that several products begin with is converted once. Bytes are the same
# (--reproducible).
#
# A failure of the input (status 1 to 3, or an input that failed) is final until an input changes: the record is newer than
# all of them. A failure of the machine, such as a full disk or a killed program, is tried again by the next make: its
# record is older than anything.
#
# Several makes may come to the same product: one makes it, the others wait for its lock, and find what is done (locks.sh).
#
# The environment: OUT, a folder for locks; ONLY, products of a part of the night: others are left alone; DEVICES, which
# jobs share: commands with --device $DEVICE wait until one of them is free; MAKEFLAGS, whose -j divides the processors
# among the jobs, AT_ONCE, how many of the kind there are, if that is less, and NTH, "K N", which of N the job is; BATCHES,
# how many batches of petals are at work; HELD, how many converted images a job holds; OMP_WAIT_POLICY, which is passive, and
# CUDA_DEVICE_MAX_CONNECTIONS, which is 2, where they are not set; LEASE.
set -fuo pipefail
script=${*: -1}
if [[ $script =~ ^[[:space:]]*list\ ([^[:space:]]+)[[:space:]]*$ ]]; then
    script=$(<"${BASH_REMATCH[1]}") || exit
    rm -f "${BASH_REMATCH[1]}"
fi
case ${1%.failed} in
*.h5 | *.fits | *.html) ;;
*) exec bash -euo pipefail -c "$script" ;;
esac

# add PRODUCT INPUT...: a product that belongs to the part; its command follows.
products=() inputs=() commands=()
add() {
    wanted=1
    if [ -n "${ONLY:-}" ] && [[ " $ONLY " != *" $1 "* ]]; then
        wanted=
        return
    fi
    products+=("$1")
    inputs+=("${*:2}")
    commands+=("")
}
list='^[[:space:]]*# [^ ]+: '
if [[ $script =~ $list ]]; then
    # A product a line, with $newline for the ends of lines: from a pipe bash reads byte after byte.
    newline=$'\001'
    mapfile -t parts <<<"$(awk -v n="$newline" '{ sub(/ $/, "") } /^# [^ ]+: / && k++ { print "" } NF { printf "%s%s", $0, n } END { print "" }' <<<"$script")"
    for part in "${parts[@]}"; do
        title=${part%%"$newline"*}
        # shellcheck disable=SC2206 # names have no blanks
        words=(${title#\# })
        add "${words[0]%:}" "${words[@]:1}"
        part=${part#*"$newline"} part=${part%"$newline"}
        [ -z "$wanted" ] || commands[-1]=${part//"$newline"/$'\n'}
    done
    unset parts
else
    add "${1%.failed}" "${@:2:$#-3}"
    [ -z "$wanted" ] || commands[0]=$script
fi
if [ ${#products[@]} -eq 0 ]; then
    exit 0
fi

# made FILE...: for commands: those products that exist
# shellcheck disable=SC2317 # it is exported
made() {
    local f
    for f in "${@%.failed}"; do
        [ ! -e "$f" ] || echo "$f"
    done
}
export -f made

# ---- the products, as functions have them ----

# A command that can read a file: [COMMAND |] PROGRAM OPTION... -f -o PRODUCT INPUT...; an input - is what COMMAND writes. Of each
# product whose command has this form: COMMAND, or none; PROGRAM with options; INPUTs.
form='^(.*[|][[:space:]]+)?([^|]+) -f -o ([^ |]+) ([^|]+)$'
begins=() takers=() words=()
for i in "${!products[@]}"; do
    begins[i]=none
    if [[ ${commands[i]} =~ $form ]]; then
        begins[i]=${BASH_REMATCH[1]:-none}
        [ "${BASH_REMATCH[3]}" != "${products[i]}" ] || takers[i]=${BASH_REMATCH[2]}
        words[i]=${BASH_REMATCH[4]}
    fi
done

# at I: makes the I-th product the one that functions are about
at() {
    product=${products[$1]} command=${commands[$1]} begin=${begins[$1]}
    lock=$OUT/lock/${product##*/} messages=$OUT/log/${product##*/}.log
    # shellcheck disable=SC2206 # names have no blanks
    needs=(${inputs[$1]})
}

# of the programs that run
export product

processors=${SLURM_CPUS_ON_NODE:-$(nproc)}
# a job has a descriptor for each of its images, and a shell's own limit is 1024 for most users
ulimit -Sn hard
here=${BASH_SOURCE[0]%/*}
# shellcheck source=/dev/null
. "$here/locks.sh"
# shellcheck source=/dev/null
. "$here/images.sh"

# ---- devices and processors of the commands ----

# shellcheck disable=SC2016
on_device='--device $DEVICE'
if [ -z "${OMP_NUM_THREADS:-}" ] && [[ " ${MAKEFLAGS:-}" =~ \ -j([0-9]+) ]]; then
    jobs=${BASH_REMATCH[1]}
    [ "${AT_ONCE:-0}" -eq 0 ] || [ "$AT_ONCE" -ge "$jobs" ] || jobs=$AT_ONCE
    # the last ones begin when others have ended
    if [ "${NTH:-}" ]; then
        last=$((${NTH#* } % jobs))
        [ "${NTH% *}" -le $((${NTH#* } - last)) ] || jobs=$last
    fi
    read -ra list <<<"${DEVICES:-}"
    [[ $script != *"$on_device"* ]] || [ ${#list[@]} -ge "$jobs" ] || jobs=${#list[@]}
    threads=$((processors / jobs))
    export OMP_NUM_THREADS=$((threads > 1 ? threads : 1))
fi

# forget FILE...: removes those that exist; most do not, and each process counts
forget() {
    local f
    for f; do
        [ ! -e "$f" ] || rm -f "$f"
    done
}

# ---- one product ----

# make_one I [placed]: makes the I-th product, whose lock is held, by its own command. placed: it has its device.
make_one() {
    local i=$1 placed=${2:-} status because='' f record run begin fd kind
    at "$i"
    await "$begin"
    fd=${converted[$begin]:-}
    run=$command
    [ -z "$fd" ] || run=${command#"$begin"}
    while :; do
        if [ -z "$placed" ] && [[ $command == *"$on_device"* ]]; then
            take_device || exit
        fi
        placed=
        forget "$product.failed" "$messages"
        (
            [ -z "$fd" ] || exec <"/dev/fd/$fd"
            exec bash -euo pipefail -c "$run" 2>"$messages" {renewer}>&-
        )
        status=$?
        [ -z "${said[$begin]:-}" ] || echo "${said[$begin]}" >>"$messages"
        ! mine || break
        [ $status -ne 0 ] || date_back "${claimed[i]}"
        exec 9>&-
        take_lock && claimed[i]=$since
        ! settled || return 0
    done
    case $status in
    0)
        [ ! -e "$product" ] || return 0
        echo 'made nothing' >>"$messages"
        ;;
    130 | 143) exit "$status" ;; # make was interrupted
    esac

    # A failure of the machine is its own cause, and the page is of failures, too.
    if [ "$status" -le 3 ] && [[ $product != *.html ]]; then
        for f in ${needs[@]+"${needs[@]}"}; do
            [ -e "${f%.failed}" ] || because+=" ${f%.failed}"
        done
    fi
    rm -f "$product"
    kind=${DEVICE:-}
    record=$(dirname "$product")/.$(basename "$product").failed.$HOSTNAME.$$
    {
        printf '%s: %s\n' product "$product" status "$status" because "${because# }" folder "$PWD"
        echo command:
        sed "s/^/    /; s/\$DEVICE/${kind%%:*}/g" <<<"$command"
        echo message:
        tail -n 10 "$messages" | sed 's/^/    /'
    } >"$record" || exit
    if [ "$status" -gt 3 ]; then
        touch -d @0 "$record"
    fi
    mv "$record" "$product.failed"
    [ -n "$because" ] || echo "$product failed, status $status: $messages" >&2
}

# Threads that wait leave the processor to other jobs: else libgomp's spin.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
# Queues of a process to a GPU: CUDA's eight make up most of its context. The driver makes contexts one after another, also those of
# several GPUs.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-2}

# Messages go to files of this process.
{ [ -d "$OUT/log" ] && [ -d "$OUT/lock" ]; } || mkdir -p "$OUT/log" "$OUT/lock" || exit
due=() claimed=()
# One process takes the locks of many products, but does not wait for any: where one is not free, each is taken in the order of
# the names, as by all makes.
order=(0)
if [ ${#products[@]} -gt 1 ]; then
    [[ $script != *"$on_device"* ]] || stand_in_line
    mapfile -t order < <(for i in "${!products[@]}"; do echo "${products[i]} $i"; done | LC_ALL=C sort)
    take_locks
fi
for i in "${order[@]##* }"; do
    at "$i"
    if [ -z "${claimed[i]:-}" ]; then
        take_lock
        claimed[i]=$since
    fi
    if settled; then
        ! mine || rm -f "$lock"
    else
        due[i]=$i
    fi
done
case ${#due[@]} in
0) ;;
1)
    leave_line
    make_one "${due[@]}"
    ;;
*)
    # shellcheck source=/dev/null
    . "$here/queues.sh"
    convert "${due[@]}"
    make_all "${due[@]}"
    ;;
esac
exit 0
