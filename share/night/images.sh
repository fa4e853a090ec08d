# shellcheck shell=bash disable=SC2034,SC2154
# images.sh: images that several products of a job begin with, each converted once, for job.sh.

# Batches of petals that are at work at a time share the processors, and the memory that images are held in.
own=$((processors / ${BATCHES:-1}))
most_conversions=$((own > 1 ? own / 2 : 1))
most_loaded=${HELD:-$((3 * own > 40 ? 3 * own : 40))}
[ "$most_loaded" -gt 0 ] || most_loaded=1

# Descriptors of what some COMMANDs write, files without a name, so that nothing is left however the job ends; the processes
# that do, PID MESSAGES, or "later MESSAGES"; their messages, and the files that had these; and those that are to be begun, in
# the order of the products.
declare -A converted=() converting=() said=() users=()
later=() told=() loaded=() begun_conversions=0

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

# Begins conversions, as many at a time as half of the job's processors: the programs that have begun use the others. No more images
# are held than those of some exposures, since they are in memory.
begin_conversions() {
    local from n=0
    for from in ${loaded[@]+"${loaded[@]}"}; do
        [ -z "${converting[$from]:-}" ] || ! kill -0 "${converting[$from]%% *}" 2>/dev/null || n=$((n + 1))
    done
    for (( ; ${#later[@]} > 0 && n < most_conversions && ${#loaded[@]} < most_loaded; n++)); do
        from=${later[begun_conversions]}
        unset "later[$((begun_conversions++))]"
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
