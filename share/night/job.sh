#!/usr/bin/env bash
# job.sh TARGET INPUT... -c COMMAND: the shell of reduce.mk. It runs the commands of a rule, and leaves a record beside a
# product that could not be made, TARGET.failed, so that make goes on and makes what depends on it from the rest:
#
#     product, status, because (inputs that are not there themselves), folder, command, and the last lines of the messages
#
# All messages of the programs are in OUT/log/PRODUCT.log.
#
# A failure of the input (status 1 to 3, or an input that failed) is final until an input changes: the record is newer than
# all of them. A failure of the machine, such as a full disk or a killed program, is tried again by the next make: its
# record is older than anything.
#
# The environment: OUT, a folder for locks; DEVICES, which jobs share: commands with --device $DEVICE wait until one of
# them is free; MAKEFLAGS, whose -j divides the processors among the jobs.
set -uo pipefail
command=${*: -1}
product=${1%.failed}
case $product in
*.h5 | *.fits | *.html) ;;
*) exec bash -euo pipefail -c "$command" ;;
esac
inputs=("${@:2:$#-3}")

# made FILE...: for commands: those products that exist
made() {
    local f
    for f in "${@%.failed}"; do
        [ ! -e "$f" ] || echo "$f"
    done
}
export -f made

# A device is a lock that the kernel releases with the process, however that ends. Each is tried for a moment in turn.
take_device() {
    local i list
    # shellcheck disable=SC2153 # it is not DEVICE
    read -ra list <<<"$DEVICES"
    while :; do
        for i in "${!list[@]}"; do
            exec 9>"$OUT/.device-$i" || return
            if flock -w 0.05 9; then
                export DEVICE=${list[i]}
                return
            fi
        done
    done
}
if [[ $command == *--device* ]]; then
    take_device || exit
fi

if [ -z "${OMP_NUM_THREADS:-}" ] && [[ " ${MAKEFLAGS:-}" =~ \ -j([0-9]+) ]]; then
    threads=$(($(nproc) / BASH_REMATCH[1]))
    export OMP_NUM_THREADS=$((threads > 1 ? threads : 1))
fi

rm -f "$product.failed"
mkdir -p "$OUT/log" || exit
messages=$OUT/log/$(basename "$product").log
bash -euo pipefail -c "$command" 2>"$messages"
status=$?
case $status in
0)
    [ ! -e "$product" ] || exit 0
    echo 'made nothing' >>"$messages"
    ;;
130 | 143) exit $status ;; # make was interrupted
esac

because=
for f in ${inputs[@]+"${inputs[@]}"}; do
    # the page is of failures, too
    [ -e "${f%.failed}" ] || [[ $product == *.html ]] || because+=" ${f%.failed}"
done
rm -f "$product"
record=$(dirname "$product")/.$(basename "$product").failed.$$
{
    printf '%s: %s\n' product "$product" status "$status" because "${because# }" folder "$PWD"
    echo command:
    sed "s/^/    /; s/\$DEVICE/${DEVICE:-}/g" <<<"$command"
    echo message:
    tail -n 10 "$messages" | sed 's/^/    /'
} >"$record" || exit
if [ "$status" -gt 3 ] && [ -z "$because" ]; then
    touch -d @0 "$record"
fi
mv "$record" "$product.failed"
[ -n "$because" ] || echo "$product failed, status $status: $messages" >&2
