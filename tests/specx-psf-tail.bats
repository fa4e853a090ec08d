# specx-psf --tail: tails of simulated arcs against those that were drawn, and what an extraction makes of them.
load common

# arc NAME OPTION...: exposure of lamps, 10 fibres of a part of arm r.
arc() {
    specx-sim -q --arc Ne,Kr --fibers 10 --wavelength 5850,6450 -f -o "$1.h5" "${@:2}"
}

fit=(--trace-degree 4 --bundle-size 10 --hermite-degree 4)

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    PATH=$SPX_BUILD/bin:$PATH
    arc bare
    arc steep --camera tail=0.0163,tail-index=2.6
    specx-psf --tail fit --start bare.h5 "${fit[@]}" -o steep-psf.h5 steep.h5 2>steep-messages
}

# pulls FILE AMPLITUDE INDEX: (fit - truth) / error of the tail 15 pixels away, and of its index
pulls() {
    h5table --provenance "$1" | tr ' ' '\n' | awk -v a="$2" -v n="$3" -F= '
        /^tail_/ { v[$1] = $2 }
        END { far = 15 ^ v["tail_index"]
              print (v["tail_amplitude"] / far - a / 15 ^ n) / (v["tail_amplitude_error"] / far), (v["tail_index"] - n) / v["tail_index_error"] }'
}

within() {
    awk '{ for (i = 1; i <= NF; i++) if (!($i > -3.5 && $i < 3.5)) exit 1 }'
}

# tail FILE: value of the tail's parameters of fibre 0
tail_of() {
    h5dump -d /psf/param "$1" | grep -o '"TAIL[A-Z]*' | tr -d '"'
}

@test "--tail fit: amplitude and index that were drawn, shallow and steep" {
    local d=$BATS_FILE_TMPDIR
    h5check "$d/steep-psf.h5"
    run ! grep 'may be wings' "$d/steep-messages"
    pulls "$d/steep-psf.h5" 0.0163 2.6 | tee pulls
    within <pulls
    arc shallow --camera tail=0.0071,tail-index=2.2
    specx-psf -q --tail fit --start "$d/bare.h5" "${fit[@]}" -o shallow-psf.h5 shallow.h5
    pulls shallow-psf.h5 0.0071 2.2 | tee pulls
    within <pulls
    [ "$(tail_of shallow-psf.h5 | tr '\n' ' ')" = 'TAILAMP TAILCORE TAILXSCA TAILYSCA TAILINDE ' ]
    # photons of the tail count as noise of the lines
    h5table -q --csv -c CHI2 -t /psffit/fibre shallow-psf.h5 | awk 'NR > 1 && !($1 > 0.8 && $1 < 1.25) { exit 1 }'
}

# With spots of 1.6 times the width, whose windows are as wide, the index would be off by 12 errors.
@test "--tail fit: light of wide cores beyond their windows is no tail" {
    arc wide --camera pitch=9,width=1.6
    arc wings --camera pitch=9,width=1.6,tail=0.0071,tail-index=2.2
    run -0 specx-psf --tail fit --start wide.h5 --trace-degree 4 --bundle-size 10 -o psf.h5 wings.h5
    pulls psf.h5 0.0071 2.2 | tee pulls
    within <pulls
    [[ "$output" != *"may be wings"* ]]
}

@test "--tail fit: the tail is taken off spectra beside a bright star" {
    local d=$BATS_FILE_TMPDIR
    seq 5840 0.5 6460 | awk '{ print $1, 100 }' >faint
    awk '{ print $1, 1000 * $2 }' faint >bright
    for fibre in 0 1 2 3 4 5 6 7 8 9; do [ $fibre = 4 ] && echo bright || echo faint; done >stars
    specx-sim -q --arm r --wavelength 5850,6450 --no-sky --no-noise --camera tail=0.0163,tail-index=2.6 --truth truth.h5 -o stars.h5 stars
    h5edit stars.h5 delete /psf
    # none: the same spots as they are fitted to lines with their tails
    specx-psf -q --start "$d/bare.h5" "${fit[@]}" -o none-psf.h5 "$d/steep.h5"
    for psf in none-psf "$d/steep-psf"; do
        for side in 0:4 5:10; do
            specx-extract -q -w 5950,6350,0.8 -s $side -o out.h5 stars.h5 "${psf%.h5}.h5"
            frame_truth out.h5 truth.h5 | awk '$1 == "clean" { print $5 }'
            rm out.h5
        done >"$(basename "$psf").pulls"
    done
    cat ./*.pulls
    paste none-psf.pulls steep-psf.pulls | awk '!($1 > 1 && $2 ^ 2 < (0.1 * $1) ^ 2) { exit 1 }'
}

@test "--tail fit: arcs without a tail give the PSF that there is without the option" {
    local d=$BATS_FILE_TMPDIR
    run -0 specx-psf --tail fit --start "$d/bare.h5" "${fit[@]}" -o tail.h5 "$d/bare.h5"
    [[ "$output" == *"no tail is seen"* ]]
    specx-psf -q --start "$d/bare.h5" "${fit[@]}" -o none.h5 "$d/bare.h5"
    h5diff tail.h5 none.h5 /psf
}

@test "--tail start: the tail of the PSF to begin with, for every day; any number of threads" {
    local d=$BATS_FILE_TMPDIR
    arc next --camera tail=0.0163,tail-index=2.6 --shift 0.1,-0.1 --noise-seed 5
    for j in 1 2; do
        specx-psf -q --reproducible --fix shape --tail start --start "$d/steep-psf.h5" -j $j --trace-degree 4 -f -o out.h5 next.h5
        cp out.h5 $j.h5
    done
    cmp 1.h5 2.h5
    h5diff -d 1e-9 1.h5 "$d/steep-psf.h5" /psf/coeff
    h5table -q --csv -c XSHIFT,X_ERR,YSHIFT,Y_ERR -t /psffit/fibre 1.h5 | awk -F, '
        NR > 1 && !(($1 - 0.1) ^ 2 < 25 * 2 * $2 ^ 2 && ($3 + 0.1) ^ 2 < 25 * 2 * $4 ^ 2) { exit 1 }'
    # the daily fit measures it anew
    specx-psf -q --fix shape --tail fit --start "$d/steep-psf.h5" --trace-degree 4 -o fit.h5 next.h5
    pulls fit.h5 0.0163 2.6 | within
}

@test "--tail: what makes no sense is refused" {
    local d=$BATS_FILE_TMPDIR
    fails_with 2 '*--tail start needs --start*' specx-psf --tail start --flat "$d/bare.h5" -o out.h5 "$d/bare.h5"
    fails_with 3 '*has no tail*--tail fit*' specx-psf --tail start --start "$d/bare.h5" "${fit[@]}" -o out.h5 "$d/bare.h5"
    fails_with 3 '*with a tail*--tail*' specx-psf --start "$d/steep-psf.h5" "${fit[@]}" -o out.h5 "$d/bare.h5"
}
