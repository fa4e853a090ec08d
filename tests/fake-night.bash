# shellcheck shell=bash
# Provides a night without data, and programs that take no time, for tests of share/reduce.mk (reduce.bats, cluster.bats):
# `load fake-night` after `load common`.

# Programs that take no time: each notes in calls when it begins and ends, and what it is told of the device. They need
# their inputs, but for h5merge; those whose output is named in bad fail with the status that stands there, and the first whose
# output is named in hold waits for a file go.
fake_programs() {
    mkdir fake
    cat >fake/fits2h5 <<'END'
#!/usr/bin/env bash
device=none output=
for ((i = 1; i <= $#; i++)); do
    case ${!i} in
    --device) j=$((i + 1)) device=${!j} ;;
    -o) j=$((++i)) output=${!j} ;;
    out/*) [ -e "${!i}" ] || [ "${0##*/}" = h5merge ] || exit 3 ;;
    esac
done
[ ! -p /dev/stdin ] || cat >/dev/null
[ "$output" ] || exec echo
echo "begin $device $output" >>calls
[ $device = none ] || sleep 0.03
echo "end $device $output" >>calls
if grep -qsx "${output##*/}" hold && mkdir "held-${output##*/}"; then
    until [ -e go ]; do sleep 0.05; done
fi 2>/dev/null
status=$(sed -n "s/^${output##*/} //p" bad)
[ ! "$status" ] || exit "$status"
printf '%s\n' "$@" >"$output.$$"
mv "$output.$$" "$output"
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

made_by() { sed -n 's|^begin [^ ]* out/||p' calls | sort; }
