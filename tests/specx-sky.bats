# specx-sky: subtraction against the truth of simulated exposures, frames that have little or nothing, queues, pipes.

load common

setup_file() {
    # 30 fibres and 300 Angstrom of the brightest sky lines: enough for scatter, small enough for seconds.
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --arm z --fibers 30 --sky-fibers 10 --snr 5:30 --cosmics 0 --bad-columns 0 --wavelength 8300,8600 \
        --throughput 0.03 --shift wave -o image.h5
    specx-extract -q -o frame.h5 image.h5
}

# figure FILE NAME: an attribute of /sky.
figure() { h5dump -a "/sky/$2" "$1" | awk '/\(0\)/ { print $2 }'; }

# between FIGURE LOW HIGH
between() { awk -v x="$1" -v low="$2" -v high="$3" 'BEGIN { exit !(x >= low && x <= high) }'; }

# values FILE PATH: one number a line.
values() {
    h5dump -A 0 -y -w 1 -m %.12g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

# damage NAME COMMAND...: copy of the frame with these changes (h5edit).
damage() {
    cp "$BATS_FILE_TMPDIR/frame.h5" "$1" && h5edit "$@"
}

@test "a camera of wide lines: stars of many lines are not taken for a sky that is shifted" {
    local knots
    # sigma 3 Angstrom, without noise: the continuum of a star must not follow its lines
    specx-sim -q --arm r --camera dispersion=2.5,width=1.2,pitch=9 --fibers 20 --sky-fibers 5 --wavelength 5740,7200 --no-noise \
        --ivar model --cosmics 0 --bad-columns 0 --snr 60:120 --teff 5200:5800 --feh=-0.8:-0.2 --seed 5 -o coarse.h5
    specx-extract -q -w 5750,7180,3 -o frame.h5 coarse.h5
    for knots in "" "--knots 25"; do
        # words on purpose
        # shellcheck disable=SC2086
        specx-sky -q $knots -f -o s.h5 frame.h5
        h5table -q --csv -t /sky/table -c ROLE,DELTA,DELTA_ERR s.h5 |
            awk -F, '$1 == "TARGET" { n++; s += ($2 / $3)^2 } END { print sqrt(s / n); exit !(n == 15) }' >"pull${knots:+25}"
    done
    cat pull pull25
    between "$(cat pull)" 0 0.2
    between "$(cat pull25)" 0.5 9
}

@test "what is left in held-out fibres is noise, with shifted traces and throughputs" {
    local f=$BATS_FILE_TMPDIR/frame.h5
    specx-sky -q --hold-out 4 -o s.h5 "$f"
    h5check s.h5
    # 1 500 bins off and 600 on lines: errors 0.04 and 0.06, 4 of these; without scale and shift chi2 is above 2
    between "$(figure s.h5 chi2_heldout_off)" 0.84 1.16
    between "$(figure s.h5 chi2_heldout_on)" 0.75 1.25
    between "$(figure s.h5 chi2_loo_off)" 0.85 1.15
    between "$(figure s.h5 chi2_loo_on)" 0.8 1.2
    specx-sky -q --hold-out 4 --terms 0,0,0 -o none.h5 "$f"
    between "$(figure none.h5 chi2_heldout_on)" 2 1e9
    # what the product has is what was subtracted
    h5dump -d /frame/flux -y -w 0 "$f" | grep '^ ' >/dev/null
    [ "$(h5table --provenance s.h5 | grep -c 'chi2_heldout')" -ge 1 ]
    [ "$(h5table --table /sky/table --columns ROLE s.h5 | grep -c HELDOUT)" = 4 ]
}

# Shifts are derivatives, which reach over a gap: what bins in it had grew from pass to pass, up to chi2 of 1e13.
@test "bins that no fibre has: the sky beside them is right" {
    local gap first length edits i n ivar
    n=$(h5ls "$BATS_FILE_TMPDIR/frame.h5/frame/mask" | sed 's/.*, \([0-9]*\)}.*/\1/')
    for gap in 60:7:0 180:2:0 180:20:0 450:7:0 60:7:1e-12 450:7:1e-12; do # all but without light: as long as it is not 0
        IFS=: read -r first length ivar <<<"$gap"
        edits=()
        for ((i = 0; i < 30; i++)); do
            [ "$ivar" != 0 ] || edits+=(range /frame/mask $((i * n + first)) $((i * n + first + length)) 1)
            edits+=(range /frame/ivar $((i * n + first)) $((i * n + first + length)) "$ivar")
        done
        damage gap.h5 "${edits[@]}"
        specx-sky -q -f --hold-out 4 -o s.h5 gap.h5
        between "$(figure s.h5 chi2_heldout_off)" 0.84 1.2
        between "$(figure s.h5 chi2_heldout_on)" 0.75 1.25
        between "$(figure s.h5 chi2_loo_off)" 0.84 1.2
        [ "$(figure s.h5 converged)" = 1 ]
    done
}

@test "a frame without noise keeps its bins" {
    specx-sim -q --arm r --fibers 12 --sky-fibers 5 --wavelength 6200,6500 --cosmics 0 --bad-columns 0 --no-noise -o image.h5
    specx-extract -q -o frame.h5 image.h5
    run specx-sky -o s.h5 frame.h5
    [ "$status" = 0 ]
    [[ "$output" != *"have no sky"* ]]
    [ "$(values s.h5 /frame/mask | sort -u)" = 0 ]
}

@test "through a pipe, repeated, with any number of threads: the same" {
    local f=$BATS_FILE_TMPDIR/frame.h5
    specx-sky -q --reproducible -j 1 -o one.h5 "$f"
    specx-sky -q --reproducible -j 3 -o three.h5 "$f"
    specx-sky -q --reproducible <"$f" | cat >piped.h5
    h5diff one.h5 three.h5 /frame
    h5diff one.h5 three.h5 /sky
    h5diff one.h5 piped.h5 /sky
    h5check piped.h5
}

@test "a queue: a folder of frames, one of which is none" {
    local f=$BATS_FILE_TMPDIR/frame.h5
    cp "$f" a.h5
    damage b.h5 delete /frame/resolution
    cp "$f" c.h5
    mkdir out
    run -3 --separate-stderr specx-sky -q -o out/ a.h5 b.h5 c.h5
    # shellcheck disable=SC2154
    [[ $stderr == *b.h5*resolution* ]]
    [ "$(ls out)" = "$(printf 'a.h5\nc.h5')" ]
    h5diff out/a.h5 out/c.h5 /sky
    run -3 --separate-stderr specx-sky -q --skip-existing -o out/ a.h5 b.h5 c.h5
    cat a.h5 c.h5 | specx-sky -q -o pipe-%s.h5
    h5diff pipe-001.h5 out/a.h5 /sky
}

@test "a queue: the flat before its frames, on the command line and by lines of a list" {
    local f=$BATS_FILE_TMPDIR/frame.h5 n
    specx-sim -q --arm z --fibers 30 --wavelength 8300,8600 --flat --throughput 0.03 -o lamp.h5
    specx-extract -q -o lamp-frame.h5 lamp.h5
    specx-flat -q -o flat-a.h5 lamp-frame.h5
    cp flat-a.h5 flat-b.h5
    h5edit flat-b.h5 set /flat/flat 0 1.5
    cp "$f" a.h5
    cp "$f" b.h5
    for n in a b; do
        specx-sky -q --flat flat-$n.h5 -o option-$n.h5 $n.h5
        specx-sky -q --reproducible -o out-$n.h5 flat-$n.h5 $n.h5
        mv out-$n.h5 alone-$n.h5
        h5diff option-$n.h5 alone-$n.h5 /frame
        h5diff option-$n.h5 alone-$n.h5 /sky
    done
    run ! h5diff -q alone-a.h5 alone-b.h5 /frame
    printf 'out-%s.h5\n' a b >outputs
    specx-sky -q --reproducible -o @outputs flat-a.h5 a.h5 flat-b.h5 b.h5
    for n in a b; do cmp alone-$n.h5 out-$n.h5; done
    printf 'flat-%s.h5\t%s.h5\n' a a b b >lines
    rm out-*
    specx-sky -q --reproducible -o @outputs @lines
    for n in a b; do cmp alone-$n.h5 out-$n.h5; done
    # without a flat; a flat of another line is none of this one
    specx-sky -q --reproducible -o none.h5 a.h5
    printf 'flat-a.h5\ta.h5\nb.h5\n' >lines
    rm out-*
    specx-sky -q --reproducible -o @outputs @lines
    cmp alone-a.h5 out-a.h5
    h5diff none.h5 out-b.h5 /frame
    fails_with 2 '*there is a flat among the inputs, too*' specx-sky --flat flat-a.h5 -o x.h5 flat-b.h5 a.h5
    fails_with 2 '*no frame takes this flat*' specx-sky -o @outputs flat-a.h5 flat-b.h5 a.h5 b.h5
    mkdir out
    fails_with 3 '*none-a.h5: cannot open*2 of 2 frames failed*' specx-sky -o out/ none-a.h5 none-b.h5
}

@test "which fibres are sky" {
    local f=$BATS_FILE_TMPDIR/frame.h5 list
    list=$(h5table --table /fibermap --columns OBJTYPE "$f" | awk 'NR > 1 && $1 == "SKY" { printf "%s%d", sep, NR - 2; sep = "," }')
    specx-sky -q -o map.h5 "$f"
    specx-sky -q --sky-fibers "$list" -o list.h5 "$f"
    h5diff map.h5 list.h5 /sky
    damage nomap.h5 delete /fibermap
    fails_with 3 'specx-sky: nomap.h5:/fibermap: does not say which fibres are sky*--sky-fibers*' specx-sky -q -o x.h5 nomap.h5
    specx-sky -q --sky-fibers "$list" -o nomap-sky.h5 nomap.h5
    h5diff map.h5 nomap-sky.h5 /sky
    fails_with 2 '*--sky-fibers*' specx-sky -q --sky-fibers 3,x -o x.h5 "$f"
    fails_with 2 '*--sky-fibers*' specx-sky -q --sky-fibers 30 -o x.h5 "$f"
    fails_with 2 '*--hold-out*' specx-sky -q --hold-out 10 -o x.h5 "$f"
    fails_with 2 '*--terms*' specx-sky -q --terms 1,2 -o x.h5 "$f"
    fails_with 2 '*--terms*' specx-sky -q --terms 5,5,5 -o x.h5 "$f"
    [ ! -e x.h5 ]
}

@test "one sky fibre, all fibres sky, a sky fibre with a star" {
    local f=$BATS_FILE_TMPDIR/frame.h5 first
    first=$(h5table --table /fibermap --columns OBJTYPE "$f" | awk 'NR > 1 && $1 == "SKY" { print NR - 2; exit }')
    specx-sky -q --sky-fibers "$first" -o one.h5 "$f"
    h5check one.h5
    # stars differ from the sky and from each other: most of these fibres are no sky, and the product says which; widths
    # of such a sky need not settle
    specx-sky -q --terms 1,2,0 --sky-fibers 0:30 -o all.h5 "$f"
    h5check all.h5
    # a target named among the sky fibres
    specx-sky -q -o good.h5 "$f"
    list=$(h5table --table /fibermap --columns OBJTYPE "$f" | awk 'NR > 1 && $1 == "SKY" { printf "%d,", NR - 2 }')
    star=$(h5table --table /scores --columns MEDIAN_RAW_COUNT_Z "$f" | awk 'NR > 1 && $1 > most { most = $1; at = NR - 2 } END { print at }')
    run -0 --separate-stderr specx-sky --sky-fibers "$list$star" -o star.h5 "$f"
    [[ $stderr == *"spectrum $star is no clean sky"* ]]
    [ "$(h5table --table /sky/table --columns ROLE star.h5 | grep -c REJECTED)" = 1 ]
    between "$(figure star.h5 chi2_loo_off)" 0.85 1.15
    # of two fibres none is the odd one
    run -0 --separate-stderr specx-sky --sky-fibers "$first,$star" -o two.h5 "$f"
    [[ $stderr == *"warning: the sky fibres contradict each other: other light in one of them?"* ]]
    run -0 --separate-stderr specx-sky -o good.h5 -f "$f"
    [[ $stderr != *contradict* ]]
}

@test "wavelengths without any sky" {
    # bins 100 to 102 of all sky fibres
    local f=$BATS_FILE_TMPDIR/frame.h5 i k
    cp "$f" gap.h5
    local n
    n=$(h5dump -H -d /frame/ivar "$f" | sed -n 's/.*SIMPLE { ( 30, \([0-9]*\) .*/\1/p')
    for i in $(h5table --table /fibermap --columns OBJTYPE "$f" | awk 'NR > 1 && $1 == "SKY" { print NR - 2 }'); do
        for k in 100 101 102; do h5edit gap.h5 set /frame/ivar $((i * n + k)) 0; done
    done
    run -0 --separate-stderr specx-sky -o s.h5 gap.h5
    [[ $stderr == *"25 of $n wavelengths have no sky"* ]]
    h5check s.h5
    values s.h5 /frame/ivar | awk -v n="$n" '{ k = (NR - 1) % n; if (k >= 89 && k <= 113 && $1 != 0) bad = 1
        good += k < 89 && $1 > 0 } END { exit bad || good == 0 }'
}

# contradict NAME VALUE: a frame with sky fibres that are by turns brighter and fainter by VALUE in five bins.
contradict() {
    local i sign=1 edits=()
    for i in $(h5table --table /fibermap --columns OBJTYPE "$BATS_FILE_TMPDIR/frame.h5" | awk 'NR > 1 && $1 == "SKY" { print NR - 2 }'); do
        sign=$((-sign))
        edits+=(range /frame/flux $((i * 526 + 100)) $((i * 526 + 105)) $((sign * $2)))
    done
    damage "$1" "${edits[@]}"
}

@test "bins in which all sky fibres contradict each other have no sky" {
    contradict c.h5 300
    run -0 --separate-stderr specx-sky --hold-out 0 -o s.h5 c.h5
    [[ $stderr == *"27 of 526 wavelengths have no sky"* ]]
    h5check s.h5
    [ "$(figure s.h5 converged)" = 1 ]
    between "$(figure s.h5 chi2_loo_off)" 0.85 1.2
    values s.h5 /frame/ivar | awk '{ k = (NR - 1) % 526; if (k >= 100 && k < 105 && $1 != 0) exit bad = 1 } END { exit bad }'
}

@test "a sky that does not converge is none: status 1, nothing is written" {
    contradict c.h5 30000
    fails_with 1 'specx-sky: c.h5:/frame: the sky of 10 fibres has not converged, * errors after 30 passes; nothing is written: name *--sky-fibers*' \
        specx-sky -q -o s.h5 c.h5
    contradict d.h5 100000
    fails_with 1 'specx-sky: d.h5:/frame: no wavelength has a sky: *contradict*nothing is written*' specx-sky -q -o s.h5 d.h5
    [ ! -e s.h5 ]
    # in a queue others are done
    mkdir out
    cp "$BATS_FILE_TMPDIR/frame.h5" good.h5
    run -1 --separate-stderr specx-sky -q -o out/ c.h5 good.h5
    [ "$(ls out)" = good.h5 ]
    [ "$(figure out/good.h5 converged)" = 1 ]
    h5table --provenance out/good.h5 | grep -F 'converged=yes'
}

@test "gradient, amplifiers, scale of lines, precision, sky kept" {
    local f=$BATS_FILE_TMPDIR/frame.h5
    specx-sky -q --gradient x --sectors --precision double -o g.h5 "$f"
    h5check g.h5
    [[ $(h5dump -a /sky/mode/names g.h5) == *x,amplifier* ]]
    specx-sky -q --scale lines -o lines.h5 "$f"
    specx-sky -q --scale none -o none.h5 "$f"
    h5check lines.h5 none.h5
    between "$(figure none.h5 chi2_loo_on)" 1.4 1e9
    specx-sky -q --keep-sky -o kept.h5 "$f"
    h5diff "$f" kept.h5 /frame/flux /frame/flux
    h5diff "$f" kept.h5 /frame/ivar /frame/ivar
    # its sky is still there; one that was subtracted is no sky
    specx-sky -q -o again.h5 kept.h5
    fails_with 3 'specx-sky: again.h5:/sky: the sky was subtracted from the frame before: *specx-extract*' \
        specx-sky -q -o no.h5 again.h5
}

@test "lines that are left are warned of: no flat field, traces that have moved" {
    specx-sim -q --arm z --fibers 25 --sky-fibers 10 --snr 5:30 --cosmics 0 --bad-columns 0 --wavelength 8300,8700 \
        --throughput 0.1 -o image.h5
    specx-extract -q -o frame.h5 image.h5
    run --separate-stderr specx-sky -o s.h5 frame.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"warning: chi2 on sky lines is "*"not divided by a flat field: give one (--flat)"* ]]
    specx-sim -q --arm z --fibers 25 --cosmics 0 --bad-columns 0 --wavelength 8300,8700 --throughput 0.1 --flat -o lamp.h5
    specx-extract -q -o lamp-frame.h5 lamp.h5
    specx-flat -q -o flat.h5 lamp-frame.h5
    run --separate-stderr specx-sky --flat flat.h5 -o flat-s.h5 frame.h5
    [ "$status" -eq 0 ]
    [[ $stderr != *warning* ]]
    run --separate-stderr specx-sky --flat flat.h5 --scale none --terms 1,0,0 -o none.h5 frame.h5
    [ "$status" -eq 0 ]
    [[ $stderr != *warning* ]]
    specx-sim -q -f --arm z --fibers 25 --sky-fibers 10 --snr 5:30 --cosmics 0 --bad-columns 0 --wavelength 8300,8700 \
        --throughput 0.1 --shift wave:3 -o image.h5
    specx-extract -q -f -o frame.h5 image.h5
    run --separate-stderr specx-sky -f --flat flat.h5 --scale none --terms 1,0,0 -o none.h5 frame.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"warning: chi2 on sky lines is "*"specx-shift"* ]]
}

@test "barycentric frames" {
    specx-sim -q --arm z --fibers 30 --sky-fibers 10 --snr 5:30 --cosmics 0 --bad-columns 0 --wavelength 8300,8600 \
        --mjd 59000 -o image.h5
    specx-extract -q --barycentric -o frame.h5 image.h5
    specx-sky -q -o s.h5 frame.h5
    h5check s.h5
    between "$(figure s.h5 chi2_loo_on)" 0.8 1.25
    h5edit frame.h5 delete /fibermap
    fails_with 3 '*BARYCENTRIC_VELOCITY*' specx-sky -q --sky-fibers 0:5 -o x.h5 frame.h5
}

@test "frames that are none" {
    damage nores.h5 delete /frame/resolution
    fails_with 3 'specx-sky: nores.h5*no resolution matrix*specx-extract*' specx-sky -q -o x.h5 nores.h5
    local by
    for by in -1 0 3; do
        damage sum.h5 scale /frame/resolution $by
        fails_with 3 '*sum.h5:/frame/resolution: row *: rows of its resolution matrix sum to *in place of 1*' specx-sky -q -o x.h5 sum.h5
    done
    damage grid.h5 set /frame/wavelength 50 8280.3
    fails_with 3 'specx-sky: grid.h5*not uniform*' specx-sky -q -o x.h5 grid.h5
    fails_with 3 '*no frame*' specx-sky -q -o x.h5 "$BATS_FILE_TMPDIR/image.h5"
    [ ! -e x.h5 ]
}

@test "a value that is not finite is refused, wherever it is" {
    local set
    for set in flux ivar resolution chi2pix pixmask_fraction; do
        damage n.h5 set /frame/$set 700 nan
        fails_with 3 "*n.h5:/frame/$set: row *not finite*" specx-sky -o s.h5 n.h5
    done
    for set in chi2pix pixmask_fraction; do
        damage n.h5 set /frame/$set 700 -1
        fails_with 3 "*n.h5:/frame/$set: row *negative*" specx-sky -o s.h5 n.h5
        damage n.h5 set /frame/$set 700 1e300 # float of 32 bits in the file
        fails_with 3 "*n.h5:/frame/$set: row *not finite*" specx-sky -o s.h5 n.h5
    done
}
