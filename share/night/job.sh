#!/usr/bin/env bash
# job.sh TARGET INPUT... -c COMMAND: the shell of reduce.mk. It runs the commands of a rule, and leaves a record beside a
# product that could not be made, TARGET.failed, so that make goes on and makes what depends on it from the rest:
#
#     product, status, because (inputs that are not there themselves), folder, command, and the last lines of the messages
#
# All messages of the programs are in OUT/log/PRODUCT.log.
#
# A command may be a list of products, each with a line "# PRODUCT: INPUT..." before its own command, in the order in which
# they are made; "list FILE" has them in a file, which is removed: an argument has 128 kB at most. Those that are to be made by
# one program with the same options are made by one process of it (make_queues), and what it fails to make each by its own
# command, which leaves the record. An image that several products begin with is converted once. Bytes are the same
# (--reproducible).
#
# A failure of the input (status 1 to 3, or an input that failed) is final until an input changes: the record is newer than
# all of them. A failure of the machine, such as a full disk or a killed program, is tried again by the next make: its
# record is older than anything.
#
# Several makes, on one machine or on several that share the folder, may come to the same product: one makes it, the others
# wait for its lock, OUT/lock/PRODUCT, and find what is done. The lock is a symbolic link to the identity of its owner and the
# product, HOST:PID:START:JOB:RESTART/PRODUCT, which is made in one step, also by a file server. It is taken over where its owner has ended,
# is an earlier start of the same Slurm job, or has not renewed it for LEASE seconds. Such an owner may go on: a machine that
# was away comes back. Programs write files of their own and rename them when they are complete, so both make the same product;
# an owner that has lost its lock removes and records nothing.
#
# The environment: OUT, a folder for locks; ONLY, products of a part of the night: others are left alone; DEVICES, which
# jobs share: commands with --device $DEVICE wait until one of them is free; MAKEFLAGS, whose -j divides the processors
# among the jobs, and AT_ONCE, how many of the kind there are, if that is less; HELD, how many converted images a job
# holds; OMP_WAIT_POLICY, which is passive where it is not set; LEASE.
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
    while IFS= read -r -d '' part; do
        title=${part%%$'\n'*}
        read -ra words <<<"${title#\# }"
        add "${words[0]%:}" "${words[@]:1}"
        part=${part#*$'\n'}
        [ -z "$wanted" ] || commands[-1]=${part%$'\n'}
    done < <(awk '{ sub(/ $/, "") } /^# [^ ]+: / && n++ { printf "%c", 0 } NF { print } END { printf "%c", 0 }' <<<"$script")
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

# ---- the locks of the products ----

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

# ---- the commands ----

# shellcheck disable=SC2016
on_device='--device $DEVICE'
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

processors=${SLURM_CPUS_ON_NODE:-$(nproc)}
most_conversions=$((processors > 1 ? processors / 2 : 1))
most_loaded=${HELD:-$((3 * processors > 40 ? 3 * processors : 40))}
[ "$most_loaded" -gt 0 ] || most_loaded=1
if [ -z "${OMP_NUM_THREADS:-}" ] && [[ " ${MAKEFLAGS:-}" =~ \ -j([0-9]+) ]]; then
    jobs=${BASH_REMATCH[1]}
    [ "${AT_ONCE:-0}" -eq 0 ] || [ "$AT_ONCE" -ge "$jobs" ] || jobs=$AT_ONCE
    read -ra list <<<"${DEVICES:-}"
    [[ $script != *"$on_device"* ]] || [ ${#list[@]} -ge "$jobs" ] || jobs=${#list[@]}
    threads=$((processors / jobs))
    export OMP_NUM_THREADS=$((threads > 1 ? threads : 1))
fi

# ---- images that several products begin with ----

# Descriptors of what some COMMANDs write, files without a name, so that nothing is left however the job ends; the processes
# that do, PID MESSAGES, or "later MESSAGES"; their messages, and the files that had these; and those that are to be begun, in
# the order of the products.
declare -A converted=() converting=() said=() users=()
later=() told=() loaded=()

# Notes those COMMANDs that several of the products I... begin with.
convert() {
    local i from folder fd
    local -A first=()
    folder=$(mktemp -d "${TMPDIR:-/tmp}/night.XXXXXX") || return
    for i; do
        from=${begins[i]}
        [ "$from" != none ] || continue
        : "${first[$from]:=$i}"
        users[$from]+=" $i"
        [ "${first[$from]}" -ne "$i" ] || continue
        [ -z "${converted[$from]:-}" ] || continue
        exec {fd}<>"$folder/$i" || continue
        converted[$from]=$fd
        at "${first[$from]}"
        converting[$from]="later $messages.convert"
        later+=("$from")
    done
    rm -r "$folder"
}

# Begins conversions, as many at a time as half of the processors: the programs that have begun use the others. No more images
# are held than those of some exposures, since they are in memory.
begin_conversions() {
    local from n=0
    for from in ${converting[@]+"${converting[@]}"}; do
        [[ $from = later* ]] || ! kill -0 "${from%% *}" 2>/dev/null || n=$((n + 1))
    done
    for (( ; ${#later[@]} > 0 && n < most_conversions && ${#loaded[@]} < most_loaded; n++)); do
        from=${later[0]}
        later=("${later[@]:1}")
        loaded+=("$from")
        (
            shut
            exec {renewer}>&-
            exec bash -euo pipefail -c "${from%|*}" >"/dev/fd/${converted[$from]}" 2>"${converting[$from]#* }"
        ) &
        converting[$from]="$! ${converting[$from]#* }"
    done
}

# Frees the memory of images whose products are made: programs have them open until they end. Where too many are held, those, too,
# whose products their queues have failed to make: their own commands convert them again.
release_images() {
    local from i fd keep=()
    for from in ${loaded[@]+"${loaded[@]}"}; do
        fd=${converted[$from]:-}
        [ "$fd" ] || continue
        for i in ${users[$from]} converting; do
            if [ "$i" = converting ]; then
                [ "${converting[$from]:-}" ] || continue
            elif ! pending "$i" || { [ "${queued[i]:-}" ] && [ ${#loaded[@]} -ge "$most_loaded" ] && ! comes "$i"; }; then
                continue
            fi
            keep+=("$from")
            continue 2
        done
        # it takes a while
        (: >"/dev/fd/$fd") &
        exec {fd}<&-
        unset "converted[$from]"
    done
    loaded=(${keep[@]+"${keep[@]}"})
}

# has_converted COMMAND: whether it has ended, or is none that is to be begun
has_converted() {
    [ -z "${converting[$1]:-}" ] || { [[ ${converting[$1]} != later* ]] && ! kill -0 "${converting[$1]%% *}" 2>/dev/null; }
}

# await COMMAND: its end. Where it fails nothing is converted, and the product's own command says why.
await() {
    local fd
    [ "${converting[$1]:-}" ] || return 0
    told+=("${converting[$1]#* }")
    if wait "${converting[$1]%% *}"; then
        said[$1]=$(<"${told[-1]}")
    else
        fd=${converted[$1]}
        exec {fd}<&-
        unset "converted[$1]"
    fi
    unset "converting[$1]"
}

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
    local i=$1 placed=${2:-} status because='' f record run begin fd
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
        # What depends on the product may be made already: it keeps the time of its inputs.
        [ $status -ne 0 ] || touch -c -d "@${claimed[i]}" "$product"
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
    record=$(dirname "$product")/.$(basename "$product").failed.$HOSTNAME.$$
    {
        printf '%s: %s\n' product "$product" status "$status" because "${because# }" folder "$PWD"
        echo command:
        sed "s/^/    /; s/\$DEVICE/${DEVICE:-}/g" <<<"$command"
        echo message:
        tail -n 10 "$messages" | sed 's/^/    /'
    } >"$record" || exit
    if [ "$status" -gt 3 ]; then
        touch -d @0 "$record"
    fi
    mv "$record" "$product.failed"
    [ -n "$because" ] || echo "$product failed, status $status: $messages" >&2
}

# ---- many products by one process ----
#
# A program takes a queue of exposures as a list whose lines come (@FILE), each when its inputs are there: the products of an
# earlier program of this job, and images that are being converted. So the programs of a job are at work on different exposures at the
# same time, as far as there are devices for them.

# Of the K-th queue: its program with options, its products I..., which are in the order of its list; how many lines are written,
# and to which descriptor; its process and messages.
programs=() items=() lines=() feeds=() processes=() ended=() notes=() readers=()
# Of products: the queue that makes it, and identity of the file that it replaces.
declare -A maker=()
before=()

# identity: of the product's file, which another one has that replaces it
identity() { stat -c '%i %.Y' "$product" 2>/dev/null; }

# has_made I: whether the product has been made by its queue
has_made() {
    local product=${products[$1]}
    [ -e "$product" ] && { [ -z "${before[$1]:-}" ] || [ "$(identity)" != "${before[$1]}" ]; }
}

# pending I: whether the product is neither made nor known to be impossible
pending() { [ -z "${finished[$1]:-}" ] && { [ -z "${queued[$1]:-}" ] || ! has_made "$1"; }; }

# Programs that take lists. On processors several frames side by side take less time than one after another.
takes_lists='^[[:space:]]*(specx-(shift|extract|sky|flux)|rvs-fit) '

# Closes lists in a process that would keep their ends from their programs, and the job's turn.
shut() {
    local fd
    for fd in ${feeds[@]+"${feeds[@]}"} $turn; do exec {fd}>&-; done
}

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

# Closes converted images: the last process that has one open frees its memory, which for 30 takes a second.
drop_images() {
    local from fd
    for from in ${converted[@]+"${!converted[@]}"}; do
        fd=${converted[$from]}
        exec {fd}<&-
    done
    converted=()
}

# Whether a product that is yet to be begun begins with an image
images_wanted() {
    local i k
    for k in ${feeds[@]+"${!feeds[@]}"}; do
        [ -z "${readers[k]}" ] || return 0
    done
    for i in ${waiting[@]+"${waiting[@]}"}; do
        [ "${begins[i]}" = none ] || return 0
    done
    return 1
}

# timely K: whether the queue has something to do soon: a queue two kinds of products before it has made its first, or has ended.
# Contexts of a device are made one after another, and those of the last programs would hold back the first images.
timely() {
    local k i
    for k in "${!ranks[@]}"; do
        [ "${ranks[k]}" -eq $((${ranks[$1]} - 2)) ] || continue
        ! has_ended "$k" || return 0
        for i in ${items[k]}; do
            ! has_made "$i" || return 0
        done
    done
    [ "${ranks[$1]}" -lt 2 ]
}

# begin_queue K: starts its program; fails where none of the devices is free now
begin_queue() {
    local k=$1 program=${programs[$1]} i fd feed list fifo word targets=()
    readers[k]=
    if [[ $program == *"$on_device"* ]]; then
        take_device now || return
        places[k]=$DEVICE taken[k]=$place
    fi
    for i in ${items[k]}; do
        at "$i"
        forget "$product.failed" "$messages"
        before[i]=
        [ ! -e "$product" ] || before[i]=$(identity)
        targets+=("$product")
        fd=${converted[$begin]:-}
        [ "$begin" = none ] || readers[k]=1
        # an image of this product alone, in a pipe
        if [ "$begin" != none ] && [ -z "$fd" ]; then
            exec {fd}< <(shut && exec bash -euo pipefail -c "${begin%|*}" 2>"$messages" {renewer}>&-)
            pipes[i]=$fd
        fi
    done
    fifo=$(mktemp -u "${TMPDIR:-/tmp}/night.XXXXXX") && mkfifo "$fifo" || exit
    # shellcheck disable=SC2094
    exec {feed}<>"$fifo" {list}<"$fifo"
    rm -f "$fifo"
    notes[k]=$OUT/log/.$HOSTNAME.$$.$k
    (
        shut
        [ "${readers[k]}" ] || drop_images
        exec {feed}>&- {renewer}>&- <&"$list" {list}<&-
        exec bash -euo pipefail -c "$program -f -o @<(printf '%s\n' ${targets[*]}) @-" 2>"${notes[k]}"
    ) &
    processes[k]=$!
    feeds[k]=$feed
    lines[k]=0
    exec {list}<&- 9>&-
}

# has_ended K: whether the queue's program has
has_ended() { [ "${ended[$1]:-}" ] || { [ "${processes[$1]:-}" ] && ! kill -0 "${processes[$1]}" 2>/dev/null; }; }

# comes I: whether the product may yet be made by its queue, which makes one after another; those behind it are looked at now
# and then.
comes() {
    local k=${maker[${products[$1]}]} i after=
    ! has_ended "$k" || return
    [ $((round % 16)) -eq 0 ] || return 0
    for i in ${items[k]}; do
        [ -z "$after" ] || ! has_made "$i" || return
        [ "$i" -ne "$1" ] || after=1
    done
}

# line_of I: sets line to the inputs of the product where they are there, or will not be; the last of them is the image. Of those
# in $(made ...) the ones that are there count.
line_of() {
    local word i fd begin those=
    line=
    at "$1"
    has_converted "$begin" || return
    await "$begin"
    fd=${converted[$begin]:-}
    for word in ${words[$1]}; do
        # shellcheck disable=SC2016
        if [ "$word" = '$(made' ]; then
            those=1
            continue
        fi
        word=${word%)}
        [ "$word" ] || continue
        if [ "$word" = - ]; then
            # without a descriptor it could not be converted
            fd=${fd:-${pipes[$1]:-}}
            word=/dev/fd/${fd:-none}
        elif [ "$those" ] && [ "${number[$word]:-}" ]; then
            # its own command may make what a queue has not
            i=${number[$word]}
            ! pending "$i" || return
            [ -e "$word" ] || continue
        elif [ "${maker[$word]:-}" ] && ! has_made "${number[$word]}"; then
            ! comes "${number[$word]}" || return
        elif [ "${number[$word]:-}" ] && [ -z "${maker[$word]:-}${finished[${number[$word]}]:-}" ]; then
            return 1
        elif [ "$those" ] && [ ! -e "$word" ]; then
            continue
        fi
        line+=${line:+$'\t'}$word
    done
    line=${line:-none}
}

# feed_queue K: writes the lines that can be, and ends the list behind the last
feed_queue() {
    local k=$1 i line list fd=${feeds[$1]}
    read -ra list <<<"${items[k]}"
    while [ "${feeds[k]:-}" ] && line_of "${list[lines[k]]}"; do
        printf '%s\n' "$line" >&"$fd"
        i=${list[lines[k]]}
        last[i]=${line##*$'\t'}
        lines[k]=$((lines[k] + 1))
        if [ "${lines[k]}" -eq ${#list[@]} ]; then
            exec {fd}>&-
            unset "feeds[$k]"
        fi
    done
}

# end_queue K: when its program has ended; what that has not made waits for its own command
end_queue() {
    local k=$1 i fd begin status=0 all=${notes[$1]} name
    local -A held=()
    wait "${processes[k]}" || status=$?
    case $status in
    130 | 143) end_job "$status" ;;
    esac
    unset "processes[$k]"
    ended[k]=1
    fd=${feeds[k]:-}
    if [ "$fd" ]; then
        exec {fd}>&-
        unset "feeds[$k]"
    fi
    for i in ${items[k]}; do
        fd=${pipes[i]:-}
        [ -z "$fd" ] || exec {fd}<&-
    done
    while read -r name; do held[$name]=1; done < <(of_mine -printf '%f\n')
    for i in ${items[k]}; do
        at "$i"
        [ -z "${said[$begin]:-}" ] || echo "${said[$begin]}" >>"$messages"
        if has_made "$i"; then
            finished[i]=1
            [ "${held[${product##*/}]:-}" ] || touch -c -d "@${claimed[i]}" "$product"
        else
            queued[i]=
            waiting[i]=$i
        fi
    done
    # Messages about one product, which its input names, go to its log, those of none to all.
    [ ! -s "$all" ] || for i in ${items[k]}; do
        printf '%s\t%s\t%s\n' "${last[i]:-none}" "${products[i]##*/}" "$OUT/log/${products[i]##*/}.log"
    done | awk -F '\t' '
        FNR == NR { input[++n] = $1; label[n] = $2; log_of[n] = $3; next }
        / frames failed: see above$/ { next }
        {
            of = 0
            for (i = 1; i <= n && !of; i++) {
                text = input[i] ": "
                at = index($0, ": " text) + 2
                before = substr($0, 1, at - 1)
                if (at > 2 && before ~ /^[^ ]*: (warning: )?$/)
                    $0 = before label[i] ": " substr($0, at + length(text))
                if (index($0, " " label[i] ": "))
                    of = i
            }
            for (i = of ? of : 1; i <= (of ? of : n); i++)
                print >>log_of[i]
        }' - "$all"
    rm -f "$all"
}

# whole I: whether the product's inputs are there, or are made by this job
whole() {
    local f
    at "$1"
    for f in ${needs[@]+"${needs[@]}"}; do
        f=${f%.failed}
        [ -e "$f" ] || [ "${number[$f]:-}" ] || return
    done
}

# place_for I: sets DEVICE for the product's own command, where that needs one: a free one, or that of a program of this job, which
# may wait for the product, while all are taken; but for one product at a time. Such commands would else wait for each other's
# programs for ever.
place_for() {
    local k
    [[ ${commands[$1]} == *"$on_device"* ]] || return 0
    ! take_device now || return 0
    [ -z "$guest" ] || [ -z "${running[guest]:-}" ] || return
    for k in ${processes[@]+"${!processes[@]}"}; do
        if [ "${places[k]:-}" ] && ! has_ended "$k"; then
            guest=$1 DEVICE=${places[k]}
            return
        fi
    done
    return 1
}

# ready I: whether the product's inputs are there, or will not be. The one that was not is asked for first.
ready() {
    local f k begin
    [ -z "${awaited[$1]:-}" ] || ! pending "${awaited[$1]}" || return
    at "$1"
    has_converted "$begin" || return
    await "$begin"
    for f in ${needs[@]+"${needs[@]}"}; do
        k=${number[${f%.failed}]:-}
        if [ "$k" ] && pending "$k"; then
            awaited[$1]=$k
            return 1
        fi
    done
}

# end_all PID...: ends processes, which are in the background, where a signal of the terminal does not reach them
end_all() {
    local pid children
    for pid; do
        children=
        read -r children 2>/dev/null <"/proc/$pid/task/$pid/children"
        # shellcheck disable=SC2086
        [ -z "$children" ] || end_all $children
        kill "$pid" 2>/dev/null
    done
}

# Makes the products I...: those that queues can make together, and all others, and those that a queue has failed to make, by
# their own commands, when their inputs are there, some at a time.
make_all() {
    local i k n part parts program list place name kind='' rank=-1 begun='' idle guest=''
    local order=() ranks=() pipes=() last=() places=() taken=() waiting=() running=() queued=() finished=() awaited=()
    local most at_once=6 round
    local -A queue=() number=() exposures=()
    for i; do
        number[${products[i]}]=$i
        waiting[i]=$i
        program=${takers[i]:-}
        [[ $program =~ $takes_lists && $program != *'--device cpu'* ]] || continue
        [ -n "${queue[$program]:-}" ] || order+=("$program")
        queue[$program]+=" $i"
    done
    for program in ${order[@]+"${order[@]}"}; do
        list=()
        for i in ${queue[$program]}; do
            ! whole "$i" || list+=("$i")
        done
        [ ${#list[@]} -ge 2 ] || continue
        # Of programs that wait for the host most of their time there are two for many products of an exposure: others wait for
        # these.
        case $program in
        *rvs-fit\ *) most=5 ;;
        *specx-shift\ *) most=15 ;;
        *) most=20 ;;
        esac
        exposures=()
        for i in "${list[@]}"; do exposures[${products[i]##*-}]=1; done
        parts=$((${#list[@]} > most * ${#exposures[@]} ? 2 : 1))
        name=${products[${list[0]}]##*/}
        [ "${name%%-*}" = "$kind" ] || rank=$((rank + 1)) kind=${name%%-*}
        for ((part = 0; part < parts; part++)); do
            k=${#programs[@]}
            programs+=("$program")
            ranks[k]=$rank
            for ((n = part; n < ${#list[@]}; n += parts)); do
                i=${list[n]}
                items[k]+=" $i"
                maker[${products[i]}]=$k
                queued[i]=1
                unset "waiting[$i]"
            done
        done
    done
    trap 'end_all $(jobs -p); exit 130' INT
    trap 'end_all $(jobs -p); exit 143' TERM
    exec {idle}<> <(:)
    [ ${#programs[@]} -gt 0 ] || leave_line
    for ((n = 0, round = 0; n < ${#programs[@]} || ${#processes[@]} + ${#waiting[@]} + ${#running[@]} > 0; round++)); do
        for k in ${feeds[@]+"${!feeds[@]}"}; do feed_queue "$k"; done
        for k in ${processes[@]+"${!processes[@]}"}; do
            ! has_ended "$k" || end_queue "$k"
        done
        # one program at a time: contexts of a device are made one after another
        if [ $n -lt ${#programs[@]} ] && timely $n && { [ "$begun" ] || take_turn; } && begin_queue $n; then
            n=$((n + 1)) begun=1
        fi
        [ $((round % 4)) -ne 0 ] || [ ${#loaded[@]} -eq 0 ] || release_images
        if [ ${#later[@]} -gt 0 ] && { [ "$turn$begun" ] || [ $n -eq ${#programs[@]} ]; }; then
            begin_conversions
        fi
        # until it waits for its own
        if [ "$turn" ] && { [ ${#later[@]} -eq 0 ] || [ ${#loaded[@]} -ge "$most_loaded" ]; } &&
            { [ $n -eq ${#programs[@]} ] || ! timely $n; }; then
            end_turn
        fi
        for i in ${running[@]+"${!running[@]}"}; do
            if ! kill -0 "${running[i]}" 2>/dev/null; then
                wait "${running[i]}" || end_job $?
                finished[i]=1
                unset "running[$i]"
            fi
        done
        for i in ${waiting[@]+"${waiting[@]}"}; do
            if [ ${#running[@]} -lt "$at_once" ] && ready "$i" && place_for "$i"; then
                (
                    shut
                    make_one "$i" placed
                ) &
                running[i]=$!
                exec 9>&-
                unset "waiting[$i]"
            fi
        done
        # the programs have the images open; what these fail to make converts its own
        [ $n -lt ${#programs[@]} ] || [ ${#converted[@]} -eq 0 ] || images_wanted || drop_images
        read -rt 0.02 -u "$idle"
    done
    exec {idle}<&-
    [ ${#told[@]} -eq 0 ] || rm -f "${told[@]}"
    trap - INT TERM
}

# end_job STATUS: ends all, where make was interrupted, or a product could not be made for want of a lock or a record
end_job() {
    # shellcheck disable=SC2046
    end_all $(jobs -p)
    exit "$1"
}

# Threads that wait leave the processor to other jobs: else libgomp's spin.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

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
    convert "${due[@]}"
    make_all "${due[@]}"
    ;;
esac
exit 0
