# rvs-zero and rvs-fit --zero-points: offsets of velocities that were put in are found, and taken out.
load common

# Stars whose velocities are wrong by 4 km/s rms, by fibre and night, in two arms.
setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --library stars --step 0.1 --wavelength 5030,5680 --axis logg=2,3,4,5 --axis feh=-2,-1,0 --axis alpha=0,0.4 \
        --axis teff=4500,5000,5500,6000,6500,7000
    fits2h5 -q stars | rvs-template -q --library-resolution none --setup b:5100:5330:0.4:FWHM=1.526 \
        --setup r:5370:5600:0.4:FWHM=1.526 -o templates.h5
    sim_epochs 200 5 7 stars.h5 zero=4 sn=60:100 teff=5000:6500 arm=b:5100:5330 arm=r:5370:5600
    h5table --csv -t /fibermap -c TARGETID,VRAD_MEAN stars.h5 | tail -n +2 | tr , ' ' | sort -u >known.txt
    for arm in b r; do
        rvs-fit -q -t templates.h5 --arms $arm --joint target --epochs --no-model "--vrange=-500,500" -o rv-$arm.h5 stars.h5
    done
}

data() {
    for f; do ln -s "$BATS_FILE_TMPDIR/$f" .; done
}

table() {
    h5table --csv -t "$2" -c "$3" "$1" | tail -n +2 | tr , ' '
}

# truth ARM: fibre, night and offset, as they were put in.
truth() {
    table stars.h5 /fibermap "FIBER,NIGHT,ZERO_$1" | sort -u
}

# pulls FILE: rms of (zero point - truth) / error of both arms, and of the errors.
pulls() {
    for arm in b r; do truth $arm | sed "s/^/$arm /"; done >put-in
    table "$1" /zeropoint/table ARM,FIBER,NIGHT,ZERO,ZERO_ERR,RELATIVE | awk 'NR == FNR { t[$1 $2 $3] = $4; next }
        { d[NR] = $4 - t[$1 $2 $3]; e[NR] = $5; set[NR] = $6; sum[$6] += d[NR]; m[$6]++ }
        END { for (i in d) { p = (d[i] - (set[i] ? sum[set[i]] / m[set[i]] : 0)) / e[i]; n++; s += p * p; q += e[i]^2 }
            print sqrt(s / n), sqrt(q / n), n }' put-in -
}

@test "zero points of standards, and of repeats: what was put in, within the errors" {
    data stars.h5 known.txt rv-b.h5 rv-r.h5
    rvs-zero -q --by arm,fiber,night --known known.txt -o zero.h5 rv-b.h5 rv-r.h5
    h5check zero.h5
    # of 200 pulls the rms is 1 within 0.15 (3 sigma)
    pulls zero.h5 | awk '{ print; exit !($3 == 200 && $1 > 0.85 && $1 < 1.15 && $2 < 1) }'
    [ "$(table zero.h5 /zeropoint/table RELATIVE | sort -u)" = 0 ]
    # repeats: each star is in the same fibre always, so that fibres are not compared with each other
    run --separate-stderr rvs-zero --by arm,fiber,night -o relative.h5 rv-b.h5 rv-r.h5
    # run sets them
    # shellcheck disable=SC2154
    [ "$status" -eq 0 ]
    # shellcheck disable=SC2154
    [[ $stderr == *"in each of 20 sets"* ]]
    h5check relative.h5
    pulls relative.h5 | awk '{ print; exit !($3 == 200 && $1 > 0.85 && $1 < 1.15 && $2 < 1) }'
    # the order of inputs does not matter
    rvs-zero -q --by arm,fiber,night --known known.txt -o turned.h5 rv-r.h5 rv-b.h5
    paste -d' ' <(table zero.h5 /zeropoint/table ZERO) <(table turned.h5 /zeropoint/table ZERO) |
        awk '($1 - $2)^2 > 1e-12 { exit 1 }'
    h5check --input zero.h5 | grep 'rvs-fit --zero-points'
}

@test "a star in twenty with a wrong velocity changes little" {
    data stars.h5 rv-b.h5 rv-r.h5
    awk 'NR % 21 == 0 { $2 += 60 } { print $1, $2, 0.1 }' "$BATS_FILE_TMPDIR/known.txt" >known.txt
    rvs-zero -q --by arm,fiber,night --known known.txt -o zero.h5 rv-b.h5 rv-r.h5
    pulls zero.h5 | awk '{ print; exit !($1 < 1.5) }'
}

@test "subtracted from both arms together: exposures and stars have the right velocities and errors" {
    data stars.h5 known.txt templates.h5 rv-b.h5 rv-r.h5
    head -n 100 known.txt >half.txt
    # measured with one half of the stars, for the other
    rvs-zero -q --by arm,fiber,night --known half.txt -o zero.h5 rv-b.h5 rv-r.h5
    fit=(rvs-fit -q -t templates.h5 "--vrange=-500,500" --no-model --rows 500:1000)
    "${fit[@]}" --joint target --epochs -o before.h5 stars.h5
    "${fit[@]}" --joint target --epochs --zero-points zero.h5 -o after.h5 stars.h5
    h5check after.h5
    for f in before after; do
        paste -d' ' <(table $f.h5 /rvfit/exposures VRAD,VRAD_ERR) <(table $f.h5 /exp_fibermap VRAD) |
            awk '{ p = ($1 - $3) / $2; n++; s += p * p } END { print sqrt(s / n) }' >$f
    done
    awk '{ print; exit !($1 > 2) }' before
    # 500 pulls with common errors of zero points
    awk '{ print; exit !($1 > 0.85 && $1 < 1.15) }' after
    [ "$(table before.h5 /rvfit/table VARIABLE | grep -c 1)" -gt 40 ]
    [ "$(table after.h5 /rvfit/table VARIABLE | grep -c 1)" -le 2 ]
    # the difference is what the columns say
    paste -d' ' <(table before.h5 /rvfit/exposures VRAD,VRAD_ERR) <(table after.h5 /rvfit/exposures VRAD,VRAD_ERR,ZERO,ZERO_ERR,ZERO_KNOWN) |
        awk '($1 - $5 - $3)^2 > 1e-10 || ($2^2 + $6^2 - $4^2)^2 > 1e-10 || ($7 - 1)^2 > 1e-10 { print; exit 1 }'
    paste -d' ' <(table before.h5 /rvfit/table VRAD,VRAD_ERR) <(table after.h5 /rvfit/table VRAD,VRAD_ERR,ZERO,ZERO_ERR) |
        awk '($1 - $5 - $3)^2 > 1e-10 || ($2^2 + $6^2 - $4^2)^2 > 1e-10 { print; exit 1 }'
    # spectra by themselves, too
    "${fit[@]}" --zero-points zero.h5 -o single.h5 stars.h5
    h5check single.h5
    paste -d' ' <(table single.h5 /rvfit/table VRAD,VRAD_ERR) <(table single.h5 /fibermap VRAD) |
        awk '{ p = ($1 - $3) / $2; n++; s += p * p } END { print sqrt(s / n); exit !(s / n > 0.85^2 && s / n < 1.15^2) }'
}

@test "which row counts, and what has none" {
    data stars.h5 templates.h5 rv-b.h5
    fit=(rvs-fit -q -t templates.h5 "--vrange=-500,500" --no-model --rows 0:5)
    "${fit[@]}" -o plain.h5 stars.h5
    # zero points of fibre 0 in one night only
    head -n 20 "$BATS_FILE_TMPDIR/known.txt" >known.txt
    rvs-zero -q --by fiber,night --known known.txt --least 1 -o zero.h5 rv-b.h5
    h5table --csv -t /zeropoint/table -c FIBER,NIGHT,ZERO zero.h5 | head -n 2
    run --separate-stderr rvs-fit -t templates.h5 "--vrange=-500,500" --no-model --rows 5:10 --zero-points zero.h5 -o x.h5 stars.h5
    [ "$status" -eq 0 ]
    cp zero.h5 other.h5
    n=$(table other.h5 /zeropoint/table ZERO | wc -l)
    [ "$n" -ge 5 ]
    fails_with 3 '*/zeropoint/table*is missing*' rvs-fit -t templates.h5 --zero-points plain.h5 -o y.h5 stars.h5
    fails_with 2 '*--fix v*' rvs-fit -t templates.h5 --fix v=1 --zero-points zero.h5 -o y.h5 stars.h5
    # nothing for the night of these
    h5edit other.h5 attr / note edited
    rvs-zero -q --by fiber --known known.txt --least 1 --max-error 100 -o fibres.h5 rv-b.h5
    "${fit[@]}" --zero-points fibres.h5 -o fibres-rv.h5 stars.h5
    z=$(table fibres.h5 /zeropoint/table FIBER,ZERO | awk '$1 == 0 { print $2 }')
    paste -d' ' <(table plain.h5 /rvfit/table VRAD) <(table fibres-rv.h5 /rvfit/table VRAD,ZERO,ZERO_KNOWN) |
        awk -v z="$z" '($1 - $2 - z)^2 > 1e-8 || $4 != 1 { print; exit 1 }'
}

@test "velocities that are refused" {
    data stars.h5 templates.h5 known.txt rv-b.h5 rv-r.h5
    rvs-zero -q --by fiber,night -o zero.h5 rv-b.h5
    rvs-fit -q -t templates.h5 --joint target --epochs --no-model "--vrange=-500,500" --rows 0:10 -o both.h5 stars.h5
    fails_with 3 '*several arms*--arms*' rvs-zero --by arm -o x.h5 both.h5
    fails_with 3 '*PETAL_LOC*' rvs-zero --by petal -o x.h5 both.h5
    rvs-fit -q -t templates.h5 --joint target --epochs --zero-points zero.h5 --no-model "--vrange=-500,500" --rows 0:10 \
        -o done.h5 stars.h5
    fails_with 3 '*subtracted already*' rvs-zero -o x.h5 done.h5
    rvs-fit -q -t templates.h5 --no-model "--vrange=-500,500" --rows 0:10 -o single.h5 stars.h5
    fails_with 3 'rvs-zero: single.h5:/rvfit/exposures: is missing: *--epochs*' rvs-zero -o x.h5 single.h5
    fails_with 1 '*--least*' rvs-zero --least 1000 -o x.h5 rv-b.h5
    fails_with 1 '*--max-error*' rvs-zero --max-error 0.001 -o x.h5 rv-b.h5
    fails_with 2 '*--by*' rvs-zero --by moon -o x.h5 rv-b.h5
    fails_with 2 '*--by*' rvs-zero --by arm,arm -o x.h5 rv-b.h5
    echo '16777217 ten' >bad.txt
    fails_with 3 '*bad.txt:1*' rvs-zero --known bad.txt -o x.h5 rv-b.h5
    echo '1 10' >none.txt
    fails_with 3 '*none of its targets*' rvs-zero --known none.txt -o x.h5 rv-b.h5
    (cat known.txt && head -n 1 known.txt) >twice.txt
    fails_with 3 '*twice*' rvs-zero --known twice.txt -o x.h5 rv-b.h5
}
