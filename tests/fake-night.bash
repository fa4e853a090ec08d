# shellcheck shell=bash
# Provides a night without data, and programs that take no time, for tests of share/reduce.mk (reduce.bats, cluster.bats):
# `load fake-night` after `load common`.

# Programs that take no time: each notes in calls when it begins and ends, what it is told of the device, and how many outputs
# its queue has (@LIST). Conversions are noted in converted, and in conversions, where that is there, when they begin and end.
# They need their inputs, but for h5merge; those whose output is named in bad fail with the status that stands there, and the first whose
# output is named in hold waits for a file go.
fake_programs() {
    mkdir fake
    cat >fake/fits2h5 <<'END'
#!/usr/bin/env bash
device=none output= inputs=() pipes=() list= worst=0
for ((i = 1; i <= $#; i++)); do
    case ${!i} in
    --device) j=$((i + 1)) device=${!j} ;;
    -o) j=$((++i)) output=${!j} ;;
    @*) list=${!i#@} ;;
    /dev/fd/*) pipes+=("${!i}") ;;
    out/*) [ -e "${!i}" ] || [ "${0##*/}" = h5merge ] || inputs+=("${!i}") ;;
    esac
done
if [ ! "$output" ]; then
    echo "$*" >>converted
    [ ! -e conversions ] || { echo begin >>conversions && sleep 0.1 && echo end >>conversions; }
    exec echo
fi
case $output in
@*) mapfile -t outputs <"${output#@}" ;;
*) outputs=("$output") ;;
esac
[ ${#outputs[@]} -gt 1 ] || [ ! -p /dev/stdin ] || cat >/dev/null
for p in ${pipes[@]+"${pipes[@]}"}; do cat "$p" >/dev/null; done
# a list of inputs, a line for each output, that come in their turn
[ -z "$list" ] || exec 3<&0
for output in "${outputs[@]}"; do
    if [ "$list" ]; then
        inputs=()
        IFS=$'\t' read -ru 3 -a names || exit 2
        for name in "${names[@]}"; do
            case $name in
            /dev/fd/*) cat "$name" >/dev/null || inputs+=("$name") ;;
            *) [ -e "$name" ] || inputs+=("$name") ;;
            esac
        done
    fi
    if [ ${#inputs[@]} -gt 0 ]; then
        worst=3
        continue
    fi
    echo "begin $device $output ${#outputs[@]}" >>calls
    [ $device = none ] || sleep 0.03
    echo "end $device $output" >>calls
    if grep -qsx "${output##*/}" hold && mkdir "held-${output##*/}"; then
        until [ -e go ]; do sleep 0.05; done
    fi 2>/dev/null
    status=$(sed -n "s/^${output##*/} //p" bad)
    if [ "$status" ]; then
        worst=$status
        [ ! -e killed ] || [ ${#outputs[@]} -eq 1 ] || kill -9 $$
        continue
    fi
    echo "$output" >"$output.$$"
    mv "$output.$$" "$output"
done
exit $worst
END
    chmod +x fake/fits2h5
    local p
    for p in specx-shift specx-extract specx-flat specx-sky specx-flux h5merge rvs-fit h52fits specplot h5table; do cp fake/fits2h5 fake/$p; done
    PATH=$PWD/fake:$PATH
    true | tee calls >bad
}

# empty_night CAMERA...: names and headers of a night of four exposures of two tiles, without data
empty_night() {
    local c e
    mkdir -p in
    touch templates.h5 continuum.h5
    for c in "$@"; do
        touch "in/psf_$c"
        for e in 0007 0008 0009 0010 0011; do
            printf "%-80s%-80s%-80s" "SIMPLE  =                    T" \
                "FLAVOR  = '$([ $e = 0007 ] && echo flat || echo science)'" "TILEID  =                 $((10#$e % 2 + 50)) / tile" >"in/${c}_n1_$e.img"
        done
    done
}

# quick [ARGUMENT...]: make of that night without a page, night with it
quick() { night PAGE= "$@"; }
night() {
    make -f "$SPX_ROOT/share/reduce.mk" NIGHT=n1 IMAGES='in/CAM_NIGHT_EXPID.img' PSFS=in/psf_CAM OUT=out "$@"
}

records() {
    (cd "$1" && ls ./*.failed) | sed 's|^\./||; s|\.failed$||'
}

made_by() { sed -n 's|^begin [^ ]* out/\([^ ]*\) .*|\1|p' calls | sort; }
