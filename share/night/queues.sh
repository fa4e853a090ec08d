# shellcheck shell=bash disable=SC2034,SC2154
# queues.sh: many products by one process, for job.sh.
#
# A program takes a queue of exposures as a list whose lines come (@FILE), each when its inputs are there: the products of an
# earlier program of this job, and images that are being converted. So the programs of a job are at work on different exposures at the
# same time, as far as there are devices for them.

# Of the K-th queue: its program with options, its products I..., which are in the order of its list; how many lines are written,
# and to which descriptor; how many of its products are made or will not be; its process and messages.
programs=() items=() lines=() feeds=() passed=() processes=() ended=() notes=() readers=()
# Products of all queues, of the K-th from first[K] on.
row=() first=()
# Of products: the queue that makes it, its place there, and identity of the file that it replaces.
declare -A maker=()
nth=() before=()

# identity: of the product's file, which another one has that replaces it
identity() { stat -c '%i %.Y' "$product" 2>/dev/null; }

# has_made I: whether the product has been made by its queue
has_made() {
    local product=${products[$1]}
    [ -e "$product" ] && { [ -z "${before[$1]:-}" ] || [ "$(identity)" != "${before[$1]}" ]; }
}

# pending I: whether the product is neither made nor known to be impossible
pending() { [ -z "${finished[$1]:-}" ] && { [ -z "${queued[$1]:-}" ] || ! has_made "$1"; }; }

# What a round of the loop reads from, which is nothing, to wait. It is open before the images are: bash cannot wait for descriptors from
# 1024 on, and those of 40 exposures are more.
exec {idle}<> <(:)

# Programs that take lists. On processors several frames side by side take less time than one after another.
takes_lists='^[[:space:]]*(specx-(shift|extract|sky|flux)|rvs-fit) '

# Closes lists in a process that would keep their ends from their programs, and the job's turn.
shut() {
    local fd
    for fd in ${feeds[@]+"${feeds[@]}"} $turn; do exec {fd}>&-; done
}

# timely K: whether the queue has something to do soon: a queue two kinds of products before it has made its first, or has ended.
# Contexts of a device are made one after another, and those of the last programs would hold back the first images.
timely() {
    local k
    for k in "${!ranks[@]}"; do
        [ "${ranks[k]}" -eq $((${ranks[$1]} - 2)) ] || continue
        [ "${passed[k]}" -eq 0 ] && ! has_ended "$k" || return 0
    done
    [ "${ranks[$1]}" -lt 2 ]
}

# begin_queue K: starts its program; fails where none of the devices is free now
begin_queue() {
    local k=$1 program=${programs[$1]} i fd feed list fifo outputs targets=()
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
        # not in the command: an argument has 128 kB at most
        exec {outputs}< <(printf '%s\n' "${targets[@]}")
        exec bash -euo pipefail -c "$program -f -o @/dev/fd/$outputs @-" 2>"${notes[k]}"
    ) &
    processes[k]=$!
    feeds[k]=$feed
    exec {list}<&- 9>&-
}

# has_ended K: whether the queue's program has
has_ended() { [ "${ended[$1]:-}" ] || { [ "${processes[$1]:-}" ] && ! kill -0 "${processes[$1]}" 2>/dev/null; }; }

# follow K: notes what the queue has made, one after another. One that it has not made is passed where one behind it is there, which
# is looked at now and then.
follow() {
    local k=$1 at=$((first[$1] + passed[$1])) end=$((first[$1] + lines[$1])) i
    for (( ; at < end; at++)); do
        if has_made "${row[at]}"; then
            finish "${row[at]}"
            continue
        fi
        [ $((round % 16)) -eq 0 ] || break
        for ((i = at + 1; i < end; i++)); do
            ! has_made "${row[i]}" || continue 2
        done
        break
    done
    passed[k]=$((at - first[k]))
}

# comes I: whether the product may yet be made by its queue
comes() {
    local k=${maker[${products[$1]}]}
    [ "${nth[$1]}" -ge "${passed[k]}" ] && ! has_ended "$k"
}

# finish I: the product is made, or cannot be. Those that wait for it are looked at again.
finish() {
    local i
    finished[$1]=1
    for i in ${asleep[$1]:-}; do
        awake[urgency[i]]=$i
    done
    unset "asleep[$1]"
}

# wait_for_own I: the product waits for its own command
wait_for_own() {
    local i=$1
    waiting[i]=$i awake[urgency[i]]=$i
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

# late I: whether the product is made when a queue has ended, not before: one has passed it, or something that it is made of.
late() {
    local f k
    ! has_made "$1" && [ -z "${finished[$1]:-}" ] || return
    if [ "${queued[$1]:-}" ]; then
        ! has_ended "${maker[${products[$1]}]}" && ! comes "$1"
        return
    fi
    for f in ${inputs[$1]}; do
        k=${number[${f%.failed}]:-}
        [ -z "$k" ] || ! late "$k" || return 0
    done
    return 1
}

# left_out I: whether the queue goes on without its next product, since an input is late: its own command makes it (line). Those
# behind it would wait till then.
left_out() {
    local f k
    [ $((round % 16)) -eq 0 ] || return
    for f in ${inputs[$1]}; do
        k=${number[${f%.failed}]:-}
        [ -z "$k" ] || ! late "$k" || {
            line=none
            return 0
        }
    done
    return 1
}

# feed_queue K: writes the lines that can be, and ends the list behind the last
feed_queue() {
    local k=$1 i=${row[first[$1] + lines[$1]]} line fd=${feeds[$1]}
    while line_of "$i" || left_out "$i"; do
        printf '%s\n' "$line" >&"$fd"
        last[i]=${line##*$'\t'}
        lines[k]=$((lines[k] + 1))
        i=${row[first[k] + lines[k]]:-}
        if [ -z "$i" ] || [ "${maker[${products[i]}]}" -ne "$k" ]; then
            exec {fd}>&-
            unset "feeds[$k]"
            break
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
            finish "$i"
            [ "${held[${product##*/}]:-}" ] || date_back "${claimed[i]}"
        else
            queued[i]=
            wait_for_own "$i"
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

# ready I: whether the product's inputs are there, or will not be. Where one is yet to come the product is looked at again when that is
# there (finish): in a night of many exposures hundreds wait.
ready() {
    local f k begin
    at "$1"
    has_converted "$begin" || return
    await "$begin"
    for f in ${needs[@]+"${needs[@]}"}; do
        k=${number[${f%.failed}]:-}
        if [ "$k" ] && pending "$k"; then
            asleep[k]+=" $1"
            unset "awake[${urgency[$1]}]"
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
    local i k n part parts program list place name kind='' rank=-1 begun='' guest=''
    local order=() ranks=() pipes=() last=() places=() taken=() waiting=() awake=() asleep=() running=() queued=() finished=()
    local most at_once=6 round
    local -A queue=() number=() exposures=()
    # Where several may be begun, velocities come before the spectra of another petal.
    local urgency=() kinds=0
    for i; do
        name=${products[i]##*/}
        [ "${name%%-*}" = "$kind" ] || kinds=$((kinds + 1)) kind=${name%%-*}
        urgency[i]=$(((${#products[@]} - kinds) * ${#products[@]} + i))
        number[${products[i]}]=$i
        wait_for_own "$i"
        program=${takers[i]:-}
        [[ $program =~ $takes_lists && $program != *'--device cpu'* ]] || continue
        [ -n "${queue[$program]:-}" ] || order+=("$program")
        queue[$program]+=" $i"
    done
    kind=
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
            ranks[k]=$rank lines[k]=0 passed[k]=0 first[k]=${#row[@]}
            for ((n = part; n < ${#list[@]}; n += parts)); do
                i=${list[n]}
                items[k]+=" $i"
                nth[i]=$((${#row[@]} - first[k]))
                row+=("$i")
                maker[${products[i]}]=$k
                queued[i]=1
                unset "waiting[$i]" "awake[${urgency[i]}]"
            done
        done
    done
    trap 'end_all $(jobs -p); exit 130' INT
    trap 'end_all $(jobs -p); exit 143' TERM
    [ ${#programs[@]} -gt 0 ] || leave_line
    for ((n = 0, round = 0; n < ${#programs[@]} || ${#processes[@]} + ${#waiting[@]} + ${#running[@]} > 0; round++)); do
        for k in ${processes[@]+"${!processes[@]}"}; do follow "$k"; done
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
                finish "$i"
                unset "running[$i]"
            fi
        done
        for i in ${awake[@]+"${awake[@]}"}; do
            [ ${#running[@]} -lt "$at_once" ] || break
            if ready "$i" && place_for "$i"; then
                (
                    shut
                    make_one "$i" placed
                ) &
                running[i]=$!
                exec 9>&-
                unset "waiting[$i]" "awake[${urgency[i]}]"
            fi
        done
        # the programs have the images open; what these fail to make converts its own
        [ $n -lt ${#programs[@]} ] || [ ${#converted[@]} -eq 0 ] || images_wanted || drop_images
        read -rt 0.02 -u "$idle"
    done
    [ ${#told[@]} -eq 0 ] || rm -f "${told[@]}"
    trap - INT TERM
}

# end_job STATUS: ends all, where make was interrupted, or a product could not be made for want of a lock or a record
end_job() {
    # shellcheck disable=SC2046
    end_all $(jobs -p)
    exit "$1"
}
